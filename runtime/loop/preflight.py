"""What is wrong with the overrides of a command, told before anything starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException


def combinations(words: Sequence[str]) -> list[list[str]]:
    """The overrides of each job of a sweep. Raises HydraException."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(list(words)), None)
    return batch


def plainly(wrong: Exception) -> str:
    """Hydra's message without what only its own users know."""
    lines = [line for line in str(wrong).splitlines() if line.strip()]
    kept = [line.strip() for line in lines if not line.startswith(("To append", "    full_key", "    object_type"))]
    cause = wrong.__cause__
    if cause is not None and str(cause).splitlines()[:1] and str(cause).splitlines()[0] not in kept:
        kept.append(str(cause).splitlines()[0])
    return "; ".join(kept)


def unknown(word: str, root: object, groups: Mapping[str, Mapping[str, object]], reward: Any) -> str | None:
    """What is wrong with one override's key or choice, told with the nearest that there is.

    Hydra itself would take `+smaples=3` at the root without a word. `root` is the configuration's dataclass, `reward`
    the weights that there are.
    """
    try:
        (override,) = OverridesParser.create().parse_overrides([word])
    except HydraException as wrong:
        return f"{word!r} is no override such as seed=3: {str(wrong).splitlines()[0]}"
    known = [f.name for f in fields(root) if f.name != "defaults"]  # type: ignore[arg-type]
    key = override.key_or_group
    head = re.split(r"[./@]", key)[0]
    if head not in known:
        return none_such("setting", head, known)
    if key in groups:
        names = [name.strip(" '\"") for name in word.partition("=")[2].split(",")]
        return next((none_such(key, n, groups[key]) for n in names if n.isidentifier() and n not in groups[key]), None)
    return _unknown_weight(key.split(".")[1:], reward) if key.startswith("reward.") else None


def _unknown_weight(parts: Sequence[str], known: Any) -> str | None:
    for part in parts:
        if not isinstance(known, Mapping) or part not in known:
            return none_such("weight", part, known if isinstance(known, Mapping) else ())
        known = known[part]
    return None


def none_such(what: str, name: str, known: Iterable[str]) -> str:
    """There is no such thing, but the nearest is this."""
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"there is no {what} {name!r}; {hint}"
