"""A command whose unit is one job with a configuration and a folder: `run` and `train` are the two there are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from guerdon.conf.run import GROUPS, RunConf
from guerdon.runtime.agent import codec
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.sandbox import SandboxProvider
from guerdon.runtime.loop.closing import close
from guerdon.runtime.loop.config import folder_name
from guerdon.runtime.loop.run import SUMMARY, check, run
from guerdon.runtime.loop.settings import Settled, Weights, reward_defaults, settle
from guerdon.runtime.loop.summary import Summary
from guerdon.runtime.policy.table import make
from guerdon.runtime.report.progress import Reporter, table
from guerdon.runtime.schedule.executor import default_admission
from guerdon.runtime.schedule.stop import stop_on_signals

INVALID_SHARE = 0.01
"""Share of invalid episodes above which a run is not well."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job, settled: which plan, by which settings, into which folder."""

    settled: Any
    """What the command's `settle` gave."""
    plan: LoadedPlan
    out: Path
    document: Mapping[str, Any]
    """The composed configuration, as plain mappings."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where jobs run: a console to tell people, sandboxes, and the plan with the pack's own weights."""

    console: Console
    provider: Callable[[], Awaitable[SandboxProvider]]
    base: LoadedPlan
    side_by_side: int = 1
    """Jobs that share this machine."""


class Command(Protocol):
    """What tells `run` from `train`. Everything here raises RunError and the like, with a line for people."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> Mapping[str, Mapping[str, object]]: ...

    @property
    def stand_in(self) -> tuple[str, ...]:
        """Overrides for what must be given, with which `--help` can be answered."""
        ...

    def root(self, plan: LoadedPlan) -> object:
        """The structured node of the configuration."""
        ...

    def settle(self, document: Mapping[str, Any], plan: LoadedPlan) -> Any:
        """Check a composed configuration and read it; it has `runs` (a folder) and `weights` (changed ones)."""
        ...

    def check(self, settled: Any, plan: LoadedPlan) -> None:
        """Refuse what the plan does not have."""
        ...

    def folder(self, settled: Any, plan: LoadedPlan) -> str:
        """The folder's name: the same for the same plan and settings."""
        ...

    def work(self, job: Job, stage: Stage) -> bool:
        """Do the job and tell what came of it; False where it is not well. Raises Interrupted."""
        ...

    def recall(self, out: Path, console: Console) -> None:
        """Tell what came of a job that is done already."""
        ...


class Run:
    """`guerdon run`: a policy over a pack."""

    name = "run"
    groups = GROUPS
    stand_in = ("policy=oracle",)

    def root(self, plan: LoadedPlan) -> object:
        return RunConf(reward=reward_defaults(plan.plan))

    def settle(self, document: Mapping[str, Any], plan: LoadedPlan) -> Settled:
        return settle(document, plan.plan)

    def check(self, settled: Settled, plan: LoadedPlan) -> None:
        check(plan, settled.cfg)
        make(settled.policy, settled.settings, codec)

    def folder(self, settled: Settled, plan: LoadedPlan) -> str:
        return folder_name(plan.plan.pack, settled.policy, plan.digest, settled.cfg, settled.settings)

    def work(self, job: Job, stage: Stage) -> bool:
        summary = asyncio.run(self._run(job, stage))
        stage.console.print(table(summary.to_json()))
        total = summary.total
        count = total.passed + total.failed + total.invalid
        well = total.invalid <= count * INVALID_SHARE
        if not well:
            stage.console.print(
                f"{total.invalid} of {count} episode(s) are invalid: the same command runs them again", markup=False
            )
        return well

    async def _run(self, job: Job, stage: Stage) -> Summary:
        settled: Settled = job.settled
        policy = make(settled.policy, settled.settings, codec)
        admit = settled.cfg.concurrency or max(1, default_admission() // stage.side_by_side)
        with Reporter(stage.console) as reporter, stop_on_signals(reporter.note) as stop:
            # A pack of plain answers runs on a machine without Podman.
            provider = await stage.provider() if job.plan.plan.environments else None
            try:
                return await run(
                    job.plan, policy, replace(settled.cfg, concurrency=admit), job.out, provider,
                    watcher=reporter, stop=stop, settings=job.document,
                )
            finally:
                await close(provider, reporter.note)

    def recall(self, out: Path, console: Console) -> None:
        with suppress(OSError, ValueError):  # DONE alone says it; the table is a courtesy
            console.print(table(json.loads((out / SUMMARY).read_text())))


RUN = Run()
Load = Callable[[str, Weights], LoadedPlan]
