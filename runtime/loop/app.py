"""`guerdon run` and `guerdon train` as Hydra applications: one job, or a sweep of them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.policy import PolicyFault
from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxProvider
from guerdon.runtime.contracts.store import AssetFault, StoreFault
from guerdon.runtime.loop.command import RUN, Command, Job, Load, Stage
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.preflight import combinations, plainly, unknown
from guerdon.runtime.loop.run import DONE
from guerdon.runtime.loop.settings import Weights, reward_defaults
from guerdon.runtime.schedule.retry import HostFault
from guerdon.runtime.schedule.stop import Interrupted
from guerdon.runtime.store.durable import write_atomically, writing

OK, TROUBLE, USAGE, INTERRUPTED = 0, 1, 2, 130
Problems = (RunError, HostFault, StoreFault, AssetFault, PolicyFault, SandboxFault, LearnerFault)


class JobFailed(Exception):
    """A job in a process of its own came to grief, and has said why."""


@dataclass(slots=True)
class App:
    """One call of a command: a plan, and the job or sweep made of it."""

    command: Command
    word: str
    """What a person typed: `run`, `eval`, `train`."""
    pack: str
    overrides: Sequence[str]
    load: Load
    stage: Stage
    after: Callable[[Path], None] = lambda out: None
    """Called with the folder of each job that came to its end, in this process or before."""
    unwell: bool = False
    halted: bool = False
    """Whether the rest of a sweep is left out, since it would meet the same fault of the host."""
    weighted: dict[str, LoadedPlan] = field(default_factory=dict)
    runs: set[Path] = field(default_factory=set)

    def job(self, config: DictConfig) -> None:
        """One job of a sweep. What went wrong with it is said here: Hydra would add lines of its own."""
        if self.halted:
            return
        try:
            self._job(config)
        except Problems as wrong:
            self.unwell = True
            self.halted = isinstance(wrong, HostFault | SandboxFault)
            self.say(f"error: {wrong}")

    def say(self, text: str) -> None:
        """Tell people a line as it is."""
        self.stage.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _job(self, config: DictConfig) -> None:
        job = self.settled(config)
        if (job.out / DONE).exists():
            self.say(f"done already: {job.out}")
            self.command.recall(job.out, self.stage.console)
            self.after(job.out)
            return
        with writing(job.out):
            job.out.mkdir(parents=True, exist_ok=True)
            write_atomically(job.out / "config.yaml", [OmegaConf.to_yaml(config).encode()])
        try:
            well = self.command.work(job, self.stage)
        except Interrupted:
            again = shlex.join(["guerdon", self.word, self.pack, *self.overrides])
            self.say(f"stopped; what was sealed is kept in {job.out}; go on with: {again}")
            # Hydra goes on with the next job after an Exception, and ends the sweep after this.
            raise KeyboardInterrupt from None
        except Problems:
            self.say(f"in the job {job.out}")
            raise
        self.unwell |= not well
        self.say(f"results: {job.out}")
        self.after(job.out)

    def settled(self, config: DictConfig) -> Job:
        """A composed configuration as one job, wholly checked, and its plan: with changed weights another one,
        since what was proved of a reward was proved of its weights. Raises RunError, AssetFault, PolicyFault."""
        document = _plain(config)
        settled = self.command.settle(document, self.stage.base)
        plan = self._weighted(settled.weights) if settled.weights else self.stage.base
        self.command.check(settled, plan)
        return Job(settled, plan, settled.runs / self.command.folder(settled, plan), document)

    def _weighted(self, weights: Weights) -> LoadedPlan:
        key = json.dumps({r: {w: str(v) for w, v in given.items()} for r, given in weights.items()}, sort_keys=True)
        if key not in self.weighted:
            self.weighted[key] = self.load(self.pack, weights)
        return self.weighted[key]


_APPS: dict[str, App] = {}
"""The application under way in this process, by its config's name."""


def run_app(
    pack: str, overrides: Sequence[str], load: Load,
    provider: Callable[[], Awaitable[SandboxProvider]], console: Console | None = None,
    *, command: Command = RUN, word: str = "", after: Callable[[Path], None] = lambda out: None,
) -> int:
    """Do a command's job on a pack, or a sweep of jobs (`-m`). Returns 0, 1 (one failed or is not well), 2, 130.

    Everything that can be refused is refused before any sandbox starts. `load` gives the plan of a pack with
    some weights replaced (none at first); what it raises of the pack itself is the caller's to say, as is StoreFault
    where no run folder can be made. `word` is what a person typed; `after` is called with each job's folder.
    """
    stage = Stage(console or Console(stderr=True), provider, load(pack, {}))
    app = App(command, word or command.name, pack, overrides, load, stage, after)
    _register(command, app.stage.base)
    _APPS[command.name] = app
    try:
        problem = _preflight(app)
        if problem:
            app.say(f"error: {problem}")
            return USAGE
        for folder in app.runs:
            with writing(folder):  # before Hydra does it, and fails with a traceback
                folder.mkdir(parents=True, exist_ok=True)
        return _launch(app)
    finally:
        del _APPS[command.name]
        GlobalHydra.instance().clear()


def _plain(config: DictConfig) -> Mapping[str, Any]:
    document = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(document, dict)
    return {str(key): value for key, value in document.items()}


def config_name(command: Command) -> str:
    """What the command's root is called in Hydra's store."""
    return f"guerdon_{command.name}"


def _launch(app: App) -> int:
    command, word, pack, overrides = app.command.name, app.word, app.pack, tuple(app.overrides)

    def job(config: DictConfig) -> None:
        # Only plain words are bound here: a launcher may send this function to another process.
        here(command, word, pack, overrides, config)

    try:
        with _argv([f"guerdon {app.word}", *_flags_first(app.overrides)]):
            hydra.main(version_base="1.3", config_path=None, config_name=config_name(app.command))(job)()
    except KeyboardInterrupt:
        return INTERRUPTED
    except JobFailed:
        return TROUBLE
    except SystemExit as end:  # Hydra's own flags: --help, --cfg, --info
        return end.code if isinstance(end.code, int) else USAGE
    return TROUBLE if app.unwell else OK


def here(command: str, word: str, pack: str, overrides: Sequence[str], config: DictConfig) -> None:
    """Do a job in this process: with the application that was started here, or, where a launcher has made this process
    for the job, with one like it. Raises JobFailed in the latter."""
    app = _APPS.get(command)
    if app is not None:
        app.job(config)
        return
    from guerdon.runtime.cli.loading import load
    from guerdon.runtime.cli.trouble import provider
    from guerdon.runtime.loop.commands import COMMANDS

    stage = Stage(Console(stderr=True), provider, load(pack, {}))
    app = App(COMMANDS[command](), word, pack, overrides, load, stage)
    app.job(config)
    if app.unwell:
        raise JobFailed(f"a job of guerdon {word} {pack} failed")


def _flags_first(words: Sequence[str]) -> list[str]:
    """Hydra takes no override after a `-m` that comes after another."""
    sweep = [word for word in words if word in ("-m", "--multirun")]
    return [*sweep, *(word for word in words if word not in ("-m", "--multirun"))]


def _register(command: Command, plan: LoadedPlan) -> None:
    store = ConfigStore.instance()
    for group, options in command.groups.items():
        for name, node in options.items():
            store.store(group=group, name=name, node=node)
    store.store(name=config_name(command), node=command.root(plan))


def _preflight(app: App) -> str | None:
    """What is wrong with any job of the sweep, in words."""
    flags = [word for word in app.overrides if word.startswith("-")]
    if any(flag not in ("-m", "--multirun") for flag in flags):
        return None  # --help and its like start nothing
    words = [word for word in app.overrides if not word.startswith("-")]
    root, reward = app.command.root(app.stage.base), reward_defaults(app.stage.base.plan)
    wrongs = (unknown(word, root, app.command.groups, reward) for word in words)
    problem = next((one for one in wrongs if one), None)
    if problem:
        return problem
    try:
        with hydra.initialize(version_base="1.3", config_path=None):
            for combination in combinations(words) if flags else [words]:
                # Which launcher is no concern of a job's.
                own = [word for word in combination if not word.startswith(("hydra.", "hydra/"))]
                app.runs.add(app.settled(hydra.compose(config_name(app.command), overrides=own)).settled.runs)
    except (HydraException, OmegaConfBaseException) as wrong:
        return plainly(wrong)
    except Problems as wrong:
        return str(wrong)
    return None


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
