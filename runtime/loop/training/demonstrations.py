"""Demonstrations for a supervised start: ordinary verified episodes of message-level policies, run once and kept."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.sandbox import SandboxProvider
from guerdon.runtime.contracts.store import FolderBusy
from guerdon.runtime.contracts.trajectory import Outcome, Sealed
from guerdon.runtime.loop.config import RunConfig, RunError, folder_name, selected
from guerdon.runtime.loop.run import DONE, Watcher, run
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.policy.table import make
from guerdon.runtime.store.journal import FileJournal

T = TypeVar("T")
WAIT = 0.5
"""Seconds between two looks at a folder that another process is filling."""


@dataclass(frozen=True, slots=True)
class Demonstrators:
    """Where demonstrations come from and how they are run; `runs` is the folder of all runs."""

    plan: LoadedPlan
    cfg: RunConfig
    provider: SandboxProvider | None
    runs: Path
    watcher: Watcher | None

    async def episodes(self, policy: str, count: int) -> list[Sealed]:
        """`count` episodes of a policy on the first rows of the split, as `guerdon run` would make them (and from the
        same folder). The oracle's must have passed; of others every valid one is taken. Raises RunError where the pack
        has too few, and what `run` raises."""
        cfg = self._sized(policy, count)
        name = folder_name(self.plan.plan.pack, policy, self.plan.digest, cfg, {})
        folder = self.runs / name
        await self._filled(policy, cfg, folder)
        with await when_free(lambda: FileJournal(folder)) as journal:
            found = list(_usable(policy, journal.latest()))
        found.sort(key=lambda one: one.trajectory.episode.key)
        if len(found) < count:
            raise RunError(
                f"warm_start asks for {count} episodes of {policy}, the pack {self.plan.plan.pack} gave {len(found)}; "
                f"ask for fewer, or give its rows a {'solution' if policy == 'oracle' else policy}"
            )
        return found[:count]

    def _sized(self, policy: str, count: int) -> RunConfig:
        """The run that gives `count` episodes: a policy may play several on each row."""
        shop = Workshop(self.plan, make(policy), self.cfg, None)
        first = next(selected(self.plan.instances(), self.cfg), None)
        if first is None:
            raise RunError(f"the pack {self.plan.plan.pack} has no row to demonstrate on; look at tasks and split")
        a_row = len(shop.policy.variants(shop.occasion(first)))
        rows = math.ceil(count / max(1, a_row))
        return RunConfig(
            seed=0, tasks=self.cfg.tasks, split=self.cfg.split, first=rows, concurrency=self.cfg.concurrency,
            retries=self.cfg.retries, give_up_after=self.cfg.give_up_after,
        )

    async def _filled(self, policy: str, cfg: RunConfig, folder: Path) -> None:
        """The run, done; where another process does it already, wait for that one."""
        while not (folder / DONE).exists():
            try:
                await run(self.plan, make(policy), cfg, folder, self.provider, watcher=self.watcher)
                return
            except FolderBusy:
                await asyncio.sleep(WAIT)


async def when_free(take: Callable[[], T]) -> T:
    """What `take` gives, as soon as no other process holds the folder. Raises StoreFault for any other trouble."""
    while True:
        try:
            return take()
        except FolderBusy:
            await asyncio.sleep(WAIT)


def _usable(policy: str, episodes: Iterator[Sealed]) -> Iterator[Sealed]:
    wanted = (Outcome.PASS,) if policy == "oracle" else (Outcome.PASS, Outcome.FAIL)
    return (one for one in episodes if one.outcome in wanted)
