"""`guerdon run PACK policy=… [overrides]`: the one place that imports Hydra."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from guerdon.conf.run import GROUPS, RunConf
from guerdon.runtime.agent import codec
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.policy import PolicyFault
from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxProvider
from guerdon.runtime.contracts.store import AssetFault, StoreFault
from guerdon.runtime.loop.closing import close
from guerdon.runtime.loop.config import RunError, folder_name
from guerdon.runtime.loop.run import DONE, SUMMARY, check, run
from guerdon.runtime.loop.settings import Settled, Weights, reward_defaults, settle
from guerdon.runtime.loop.summary import Summary
from guerdon.runtime.policy.table import POLICIES, make
from guerdon.runtime.report.progress import Reporter, table
from guerdon.runtime.schedule.retry import HostFault
from guerdon.runtime.schedule.stop import Interrupted, stop_on_signals
from guerdon.runtime.store.durable import write_atomically, writing

NAME = "guerdon_run"
OK, TROUBLE, USAGE, INTERRUPTED = 0, 1, 2, 130
INVALID_SHARE = 0.01
"""Share of invalid episodes above which a run is not well."""

Load = Callable[[str, Weights], LoadedPlan]
Problems = (RunError, HostFault, StoreFault, AssetFault, PolicyFault, SandboxFault)


@dataclass(slots=True)
class App:
    """One call of `guerdon run`: a plan, and the run or sweep made of it."""

    pack: str
    overrides: Sequence[str]
    plan: LoadedPlan
    load: Load
    provider: Callable[[], Awaitable[SandboxProvider]]
    console: Console
    command: str = "run"
    after: Callable[[Path], None] = lambda out: None
    """Called with the folder of each run that came to its end, in this process or before."""
    unwell: bool = False
    halted: bool = False
    """Whether the rest of a sweep is left out, since it would meet the same fault of the host."""
    weighted: dict[str, LoadedPlan] = field(default_factory=dict)
    runs: set[Path] = field(default_factory=set)

    def job(self, config: DictConfig) -> None:
        """One run of a sweep. What went wrong with it is said here: Hydra would add lines of its own."""
        if self.halted:
            return
        try:
            self._job(config)
        except Problems as wrong:
            self.unwell = True
            self.halted = isinstance(wrong, HostFault | SandboxFault)
            self.console.print(f"error: {wrong}", markup=False, highlight=False, soft_wrap=True)

    def _job(self, config: DictConfig) -> None:
        settled, plan = self.settled(config)
        name = folder_name(plan.plan.pack, settled.policy, plan.digest, settled.cfg, settled.settings)
        out = settled.runs / name
        if (out / DONE).exists():
            self.console.print(f"done already: {out}", markup=False, soft_wrap=True)
            with suppress(OSError, ValueError):  # DONE alone says it; the table is a courtesy
                self.console.print(table(json.loads((out / SUMMARY).read_text())))
            self.after(out)
            return
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(out / "config.yaml", [OmegaConf.to_yaml(config).encode()])
        try:
            summary = asyncio.run(self._run(settled, plan, out, config))
        except Interrupted:
            again = shlex.join(["guerdon", self.command, self.pack, *self.overrides])
            self.console.print(
                f"stopped; what was sealed is kept in {out}; go on with: {again}",
                markup=False, soft_wrap=True,
            )
            # Hydra goes on with the next job after an Exception, and ends the sweep after this.
            raise KeyboardInterrupt from None
        self._tell(summary, out)
        self.after(out)

    def settled(self, config: DictConfig) -> tuple[Settled, LoadedPlan]:
        """A composed configuration as one run, wholly checked, and its plan: with changed weights another one,
        since what was proved of a reward was proved of its weights. Raises RunError, AssetFault, PolicyFault."""
        settled = settle(_plain(config), self.plan.plan)
        plan = self._weighted(settled.weights) if settled.weights else self.plan
        check(plan, settled.cfg)
        make(settled.policy, settled.settings, codec)
        return settled, plan

    def _weighted(self, weights: Weights) -> LoadedPlan:
        key = json.dumps({r: {w: str(v) for w, v in given.items()} for r, given in weights.items()}, sort_keys=True)
        if key not in self.weighted:
            self.weighted[key] = self.load(self.pack, weights)
        return self.weighted[key]

    async def _run(self, settled: Settled, plan: LoadedPlan, out: Path, config: DictConfig) -> Summary:
        policy = make(settled.policy, settled.settings, codec)
        with Reporter(self.console) as reporter, stop_on_signals(reporter.note) as stop:
            # A pack of plain answers runs on a machine without Podman.
            provider = await self.provider() if plan.plan.environments else None
            try:
                return await run(
                    plan, policy, settled.cfg, out, provider,
                    watcher=reporter, stop=stop, settings=_plain(config),
                )
            finally:
                await close(provider, reporter.note)

    def _tell(self, summary: Summary, out: Path) -> None:
        self.console.print(table(summary.to_json()))
        total = summary.total
        count = total.passed + total.failed + total.invalid
        if total.invalid > count * INVALID_SHARE:
            self.unwell = True
            self.console.print(
                f"{total.invalid} of {count} episode(s) are invalid: the same command runs them again",
                markup=False,
            )
        self.console.print(f"results: {out}", markup=False, soft_wrap=True)


def run_app(
    pack: str, overrides: Sequence[str], load: Load,
    provider: Callable[[], Awaitable[SandboxProvider]], console: Console | None = None,
    *, command: str = "run", after: Callable[[Path], None] = lambda out: None,
) -> int:
    """Run a pack, or a sweep over it (`-m`). Returns 0, 1 (a run failed or is not well), 2 (usage) or 130.

    Everything that can be refused is refused before any sandbox starts. `load` gives the plan of a pack with
    some weights replaced (none at first); what it raises of the pack itself is the caller's to say, as is StoreFault
    where no run folder can be made. `command` is what a person typed; `after` is called with each run's folder.
    """
    app = App(pack, overrides, load(pack, {}), load, provider, console or Console(stderr=True), command, after)
    _register(app.plan)
    try:
        problem = _preflight(app)
        if problem:
            app.console.print(f"error: {problem}", markup=False, highlight=False, soft_wrap=True)
            return USAGE
        for folder in app.runs:
            with writing(folder):  # before Hydra does it, and fails with a traceback
                folder.mkdir(parents=True, exist_ok=True)
        return _launch(app)
    finally:
        GlobalHydra.instance().clear()


def _plain(config: DictConfig) -> Mapping[str, Any]:
    document = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(document, dict)
    return {str(key): value for key, value in document.items()}


def _launch(app: App) -> int:
    def job(config: DictConfig) -> None:
        app.job(config)

    try:
        with _argv(["guerdon run", *_flags_first(app.overrides)]):
            hydra.main(version_base="1.3", config_path=None, config_name=NAME)(job)()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:  # Hydra's own flags: --help, --cfg, --info
        return end.code if isinstance(end.code, int) else USAGE
    return TROUBLE if app.unwell else OK


def _flags_first(words: Sequence[str]) -> list[str]:
    """Hydra takes no override after a `-m` that comes after another."""
    sweep = [word for word in words if word in ("-m", "--multirun")]
    return [*sweep, *(word for word in words if word not in ("-m", "--multirun"))]


def _register(plan: LoadedPlan) -> None:
    store = ConfigStore.instance()
    for group, options in GROUPS.items():
        for name, node in options.items():
            store.store(group=group, name=name, node=node)
    store.store(name=NAME, node=RunConf(reward=reward_defaults(plan.plan)))


def _preflight(app: App) -> str | None:
    """What is wrong with any run of the sweep, in words."""
    flags = [word for word in app.overrides if word.startswith("-")]
    if any(flag not in ("-m", "--multirun") for flag in flags):
        return None  # --help and its like start nothing
    words = [word for word in app.overrides if not word.startswith("-")]
    unknown = next((problem for word in words if (problem := _unknown(word, app.plan))), None)
    if unknown:
        return unknown
    try:
        with hydra.initialize(version_base="1.3", config_path=None):
            for combination in _combinations(words) if flags else [words]:
                settled, _ = app.settled(hydra.compose(NAME, overrides=combination))
                app.runs.add(settled.runs)
    except (HydraException, OmegaConfBaseException) as wrong:
        return _plainly(wrong)
    except Problems as wrong:
        return str(wrong)
    return None


def _unknown(word: str, plan: LoadedPlan) -> str | None:
    """What is wrong with one override's key. Hydra itself would take `+smaples=3` at the root without a word."""
    try:
        (override,) = OverridesParser.create().parse_overrides([word])
    except HydraException as wrong:
        return f"{word!r} is no override such as seed=3: {str(wrong).splitlines()[0]}"
    known = [f.name for f in fields(RunConf) if f.name != "defaults"]
    head = re.split(r"[./@]", override.key_or_group)[0]
    if head in known:
        return _unknown_choice(override.key_or_group, word.partition("=")[2], plan)
    return _none_such("setting", head, known)


def _combinations(words: Sequence[str]) -> list[list[str]]:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(list(words)), None)
    return batch


def _plainly(wrong: Exception) -> str:
    """Hydra's message without what only its own users know."""
    lines = [line for line in str(wrong).splitlines() if line.strip()]
    kept = [line.strip() for line in lines if not line.startswith(("To append", "    full_key", "    object_type"))]
    cause = wrong.__cause__
    if cause is not None and str(cause).splitlines()[:1] and str(cause).splitlines()[0] not in kept:
        kept.append(str(cause).splitlines()[0])
    return "; ".join(kept)


def _unknown_choice(key: str, given: str, plan: LoadedPlan) -> str | None:
    """A policy or a weight that does not exist, told with what there is."""
    if key == "policy":
        names = [name.strip(" '\"") for name in given.split(",")]
        return next((_none_such("policy", n, POLICIES) for n in names if n.isidentifier() and n not in POLICIES), None)
    known: Any = reward_defaults(plan.plan)
    for part in key.split(".")[1:] if key.startswith("reward.") else ():
        if not isinstance(known, Mapping) or part not in known:
            return _none_such("weight", part, known if isinstance(known, Mapping) else ())
        known = known[part]
    return None


def _none_such(what: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"there is no {what} {name!r}; {hint}"


@contextmanager
def _argv(words: Sequence[str]) -> Iterator[None]:
    """Hydra reads the command line itself; with full errors it raises instead of exiting."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = list(words)
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full
