"""What is wrong with the words of a command, told before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue

from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.near import hint, none_such

SWEEP = ("-m", "--multirun")
ASKING = ("-h", "--help", "-c", "--cfg", "-i", "--info", "--hydra-help", "--version")
"""Hydra's own questions, that start nothing."""
ASKING_HOW = ("--resolve", "-p", "--package")
SHOWN = {"--cfg": ("job", "hydra", "all"), "-c": ("job", "hydra", "all")}
LAUNCHERS = ("basic", "joblib")
MOST = 1024
SIDE_BY_SIDE = "hydra.launcher.n_jobs"
"""The one setting of a launcher that is ours to pass on: others change how jobs end, or what is called."""


@dataclass(frozen=True, slots=True)
class Groundwork:
    """What a command's overrides may name: the root of its configuration, its groups, the weights that there are."""

    root: object
    groups: Mapping[str, Mapping[str, object]]
    reward: Any


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in order: the folders that results go below, and how many jobs will be done side by side."""

    runs: frozenset[Path]
    side_by_side: int


def asks(words: Sequence[str]) -> bool:
    """Whether the words are one of Hydra's questions. Raises RunError for a flag that is none of ours."""
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    for flag in flags:
        if flag not in (*SWEEP, *ASKING, *ASKING_HOW):
            raise RunError(f"there is no flag {flag}; there are -m (sweep), --cfg job, --info defaults and --help")
    asked = [flag for flag in flags if flag in ASKING]
    if not asked and (how := [flag for flag in flags if flag in ASKING_HOW]):
        raise RunError(f"{how[0]} goes with --cfg job or --help")
    if asked and len(asked) + any(flag in SWEEP for flag in flags) > 1:
        raise RunError(f"{asked[0]} shows one job: leave out the other flags, and give each key one value")
    if asked and asked[0] in SHOWN:
        _refuse_unshown(asked[0], words)
    return bool(asked)


def _refuse_unshown(flag: str, words: Sequence[str]) -> None:
    at = next(n for n, word in enumerate(words) if word.partition("=")[0] == flag)
    after = next(iter(words[at + 1:]), "")
    what = words[at].partition("=")[2] or ("" if "=" in after or after.startswith("-") else after)
    if not what:
        raise RunError(f"{flag} does not say what to show; give {flag} job")
    if what not in SHOWN[flag]:
        raise RunError(f"{flag} does not show {what!r}; {hint(what, SHOWN[flag])}")


def checked(
    words: Sequence[str], name: str, ground: Groundwork, settled: Callable[[DictConfig], tuple[Path, Path]]
) -> Found:
    """Compose and settle every job of the words. `settled` gives a job's folder and the folder of all runs.

    Raises RunError, HydraException, OmegaConfBaseException, and what `settled` raises.
    """
    overrides = [_parsed(word) for word in words if not word.startswith("-")]
    sweep = any(word in SWEEP for word in words)
    own = [one for one in overrides if not _is_hydras(one)]
    for one in own:
        if one.is_sweep_override() and not sweep:
            raise RunError(f"`{one.input_line}` asks for several jobs: add -m; a list is written as [1,2]")
    if any(one.key_or_group == SIDE_BY_SIDE for one in overrides) and not _by_joblib(overrides):
        raise RunError(f"{SIDE_BY_SIDE} goes with hydra/launcher=joblib")
    with hydra.initialize(version_base="1.3", config_path=None):
        loader = GlobalHydra.instance().config_loader()
        plain = [str(one.input_line) for one in own]
        jobs = combinations(plain, loader) if sweep else [plain]
        for word in dict.fromkeys(word for job in jobs for word in job):
            if problem := unknown(word, ground):
                raise RunError(problem)
        places = [settled(hydra.compose(name, overrides=job)) for job in jobs]
    count = _side_by_side(overrides, len(jobs)) if sweep and _by_joblib(overrides) else 1
    if count > 1:
        _refuse_twins(jobs, [out for out, _ in places])
    return Found(frozenset(runs for _, runs in places), count)


def combinations(words: Sequence[str], loader: Any = None) -> list[list[str]]:
    """The overrides of each job of a sweep; a configuration loader knows what globs may match. Raises
    HydraException."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    parser = OverridesParser.create(config_loader=loader)
    (batch,) = BasicSweeper.split_arguments(parser.parse_overrides(list(words)), None)
    if not batch:
        raise RunError("the sweep has no job: a range or a glob of it is empty")
    return batch


def plainly(wrong: Exception) -> str:
    """Hydra's message in one line, without what only its own users know."""
    if isinstance(wrong, MissingMandatoryValue):
        return f"{wrong.full_key} must be given: `{wrong.full_key}=…`"
    lines = [line for line in str(wrong).splitlines() if line.strip()]
    kept = [line.strip() for line in lines if not line.startswith(("To append", "    full_key", "    object_type"))]
    cause = wrong.__cause__
    if cause is not None and str(cause).splitlines()[:1] and str(cause).splitlines()[0] not in kept:
        kept.append(str(cause).splitlines()[0])
    return "; ".join(line.rstrip(".") for line in kept).replace(":; ", ": ")


def unknown(word: str, ground: Groundwork) -> str | None:
    """What is wrong with one override's key or choice, told with the nearest that there is.

    Hydra itself would take `+smaples=3` at the root without a word.
    """
    key = _parsed(word).key_or_group
    known = [f.name for f in fields(ground.root) if f.name != "defaults"]  # type: ignore[arg-type]
    head, *rest = re.split(r"[./@]", key)
    if head not in known:
        return none_such("setting", head, known)
    if key in ground.groups:
        choice = word.partition("=")[2].strip(" '\"")
        return none_such(key, choice, ground.groups[key]) if choice not in ground.groups[key] else None
    if head == "reward":
        return _unknown_weight(rest, ground.reward)
    inner = _inner(head, ground)
    if rest and inner and rest[0] not in inner:
        return none_such("setting", f"{head}.{rest[0]}", [f"{head}.{one}" for one in inner])
    return None


def _inner(head: str, ground: Groundwork) -> list[str]:
    """The settings of a group, of all its options together, or of a part of the root."""
    nodes = list(ground.groups[head].values()) if head in ground.groups else [getattr(ground.root, head, None)]
    return list(dict.fromkeys(f.name for node in nodes if is_dataclass(node) for f in fields(node)))


def _unknown_weight(parts: Sequence[str], known: Any) -> str | None:
    for part in parts:
        if not isinstance(known, Mapping) or part not in known:
            return none_such("weight", part, known if isinstance(known, Mapping) else ())
        known = known[part]
    return None


def _parsed(word: str) -> Override:
    try:
        (override,) = OverridesParser.create().parse_overrides([word])
    except HydraException as wrong:
        raise RunError(f"{word!r} is no override such as seed=3: {str(wrong).splitlines()[0]}") from None
    if override.is_delete():
        raise RunError(f"{word!r} would take a setting away; give it another value instead")
    return override


def _is_hydras(override: Override) -> bool:
    """Whether it is about the launcher. Raises RunError for all else of Hydra's own: output folders, working folder
    and sweeper are the command's."""
    key = override.key_or_group
    if key == "hydra/launcher":
        if override.is_sweep_override():
            raise RunError("hydra/launcher cannot be swept; give one of " + ", ".join(LAUNCHERS))
        name = str(override.value())
        if name not in LAUNCHERS:
            raise RunError(none_such("launcher", name, LAUNCHERS))
        if name == "joblib" and not (find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_joblib_launcher")):
            raise RunError("hydra/launcher=joblib needs a package; pip install 'guerdon[joblib]'")
        return True
    if key == SIDE_BY_SIDE:
        count = override.value()
        if type(count) is not int or not -MOST <= count <= MOST or count == 0:
            raise RunError(f"{SIDE_BY_SIDE} is {str(override.input_line).partition('=')[2]!r}; "
                           "give a number of jobs, such as 2, or -1 for one a processor")
        return True
    if re.split(r"[./@]", key)[0] == "hydra":
        raise RunError(f"{key} cannot be set; of Hydra's own settings, hydra/launcher and {SIDE_BY_SIDE} can")
    return False


def _by_joblib(overrides: Sequence[Override]) -> bool:
    return [one.value() for one in overrides if one.key_or_group == "hydra/launcher"][-1:] == ["joblib"]


def _side_by_side(overrides: Sequence[Override], jobs: int) -> int:
    given = [one.value() for one in overrides if one.key_or_group == SIDE_BY_SIDE]
    asked = int(given[-1]) if given else -1  # type: ignore[arg-type]
    usable = len(os.sched_getaffinity(0))
    return max(1, min(asked if asked > 0 else usable + 1 + asked, jobs))


def _refuse_twins(jobs: Sequence[Sequence[str]], folders: Sequence[Path]) -> None:
    """Jobs of one folder would wait for each other, or fail on its lock."""
    seen: dict[Path, Sequence[str]] = {}
    for job, folder in zip(jobs, folders, strict=True):
        if folder in seen:
            raise RunError(f"two jobs of the sweep are the same run: `{' '.join(seen[folder])}` and `{' '.join(job)}`; "
                           "leave one out")
        seen[folder] = job
