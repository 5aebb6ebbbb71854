"""`guerdon run`, `eval` and `train` as Hydra applications: one job, or a sweep of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.policy import PolicyFault
from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxProvider
from guerdon.runtime.contracts.store import AssetFault, StoreFault
from guerdon.runtime.loop import launch
from guerdon.runtime.loop.command import RUN, Command, Job, Load, Stage
from guerdon.runtime.loop.commands import AFTER
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.preflight import Found, Groundwork, asks, checked, plainly
from guerdon.runtime.loop.run import DONE
from guerdon.runtime.loop.settings import Weights, reward_defaults
from guerdon.runtime.schedule.retry import HostFault
from guerdon.runtime.schedule.stop import Interrupted
from guerdon.runtime.store.durable import write_atomically, writing

USAGE = 2
Problems = (RunError, HostFault, StoreFault, AssetFault, PolicyFault, SandboxFault, LearnerFault)


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
    unwell: bool = False
    halted: bool = False
    """Whether the rest of a sweep is left out, since it would meet the same fault of the host."""
    weighted: dict[str, LoadedPlan] = field(default_factory=dict)

    def job(self, config: DictConfig) -> None:
        """One job of a sweep. What went wrong with it is said here: Hydra would add lines of its own. Raises
        Interrupted."""
        if self.halted:
            return
        which = shlex.join(HydraConfig.get().overrides.task)
        try:
            job = self.settled(config)
            which = f"{which} ({job.out})".strip()
            self._do(job, config)
        except Problems as wrong:
            self.unwell = True
            self.halted = isinstance(wrong, HostFault | SandboxFault)
            self.say(f"error: the job {which}: {wrong}")

    def say(self, text: str) -> None:
        """Tell people a line as it is."""
        self.stage.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _do(self, job: Job, config: DictConfig) -> None:
        if (job.out / DONE).exists():
            self.say(f"done already: {job.out}")
            self.command.recall(job.out, self.stage.console)
        else:
            with writing(job.out):
                job.out.mkdir(parents=True, exist_ok=True)
                write_atomically(job.out / "config.yaml", [OmegaConf.to_yaml(config).encode()])
            try:
                self.unwell |= not self.command.work(job, self.stage)
            except Interrupted:
                again = shlex.join(["guerdon", self.word, self.pack, *self.overrides])
                self.say(f"stopped; what was sealed is kept in {job.out}; go on with: {again}")
                raise
            self.say(f"results: {job.out}")
        if self.word in AFTER:
            AFTER[self.word]()(job.out, self.stage.base, self.stage.console)

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


def run_app(
    pack: str, overrides: Sequence[str], load: Load,
    provider: Callable[[], Awaitable[SandboxProvider]], console: Console | None = None,
    *, command: Command = RUN, word: str = "",
) -> int:
    """Do a command's job on a pack, or a sweep of jobs (`-m`). Returns 0, 1 (one failed or is not well), 2, 130.

    Everything that can be refused is refused before any sandbox starts. `load` gives the plan of a pack with
    some weights replaced (none at first); what it raises of the pack itself is the caller's to say, as is StoreFault
    where no run folder can be made. `word` is what a person typed.
    """
    stage = Stage(console or Console(stderr=True), provider, load(pack, {}))
    app = App(command, word or command.name, pack, overrides, load, stage)
    launch.register(command, stage.base)
    try:
        if _asks(overrides):
            return launch.answer(app)
        found = _preflight(app)
        for folder in found.runs:
            with writing(folder):  # before Hydra does it, and fails with a traceback
                folder.mkdir(parents=True, exist_ok=True)
        return launch.launched(app, found.side_by_side)
    except Refused as wrong:
        app.say(f"error: {wrong}")
        return USAGE
    except (HydraException, OmegaConfBaseException) as wrong:
        app.say(f"error: {plainly(wrong)}")
        return USAGE
    finally:
        GlobalHydra.instance().clear()


class Refused(Exception):
    """A job of the sweep cannot be done; nothing was started."""


def _asks(words: Sequence[str]) -> bool:
    try:
        return asks(words)
    except RunError as wrong:
        raise Refused(str(wrong)) from wrong


def _preflight(app: App) -> Found:
    """Every job of the sweep, composed and checked. Raises Refused."""
    ground = Groundwork(
        app.command.root(app.stage.base), app.command.groups, reward_defaults(app.stage.base.plan)
    )

    def settled(config: DictConfig) -> tuple[Path, Path]:
        job = app.settled(config)
        return job.out, job.settled.runs

    try:
        return checked(app.overrides, launch.config_name(app.command), ground, settled)
    except Problems as wrong:
        raise Refused(str(wrong)) from wrong


def _plain(config: DictConfig) -> Mapping[str, Any]:
    document = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(document, dict)
    return {str(key): value for key, value in document.items()}
