"""One batch of episodes in lockstep: all of a wave begin together, each turn is one batch of the sampler."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Outcome, Sealed
from guerdon.runtime.loop.episode import Job, run_episode
from guerdon.runtime.loop.run import Watcher
from guerdon.runtime.loop.training.order import seed
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.policy.trained import Trained, session
from guerdon.runtime.schedule.executor import run_jobs
from guerdon.runtime.schedule.retry import Breaker
from guerdon.runtime.store.durable import writing
from guerdon.runtime.store.journal import FileJournal


@dataclass(frozen=True, slots=True)
class Collector:
    """What all batches of a training run share. `width` bounds the episodes that are alive at once (0: all)."""

    shop: Workshop
    policy: Trained
    breaker: Breaker
    width: int
    watcher: Watcher | None

    async def collect(self, title: str, wanted: Wanted, folder: Path) -> list[Sealed]:
        """Run every episode, in the order given; what is in the folder of an earlier try is dropped first.

        A batch is done wholly or anew: part of one, gone on with, would be sampled in other company than the whole.
        Raises LearnerFault, HostFault, StoreFault, AssetFault, Interrupted.
        """
        jobs = wanted.jobs(self.shop.plan.digest)
        shop = replace(self.shop, policy=replace(self.policy, name=wanted.policy))
        with writing(folder):
            shutil.rmtree(folder, ignore_errors=True)
        if self.watcher:
            self.watcher.begin(title, len(jobs), 0)
        done: dict[str, Sealed] = {}
        with FileJournal(folder) as journal:
            for wave in _waves(jobs, self.width):
                await self._wave(shop, wave, journal, done)
        return [done[job.spec.key] for job in jobs]

    async def _wave(
        self, shop: Workshop, wave: Sequence[Job], journal: FileJournal, done: dict[str, Sealed]
    ) -> None:
        sessions = [session(job.spec.seed) for job in wave]
        self.policy.lockstep.begin(sessions)

        async def work(job: Job) -> None:
            try:
                sealed = await run_episode(shop, job)
            finally:
                self.policy.lockstep.leave(session(job.spec.seed))
            if self.policy.lockstep.fault is not None:
                raise LearnerFault(str(self.policy.lockstep.fault))
            self._note(sealed)
            journal.seal(sealed)
            done[job.spec.key] = sealed

        await run_jobs(iter(wave), work, len(wave))
        await self.policy.lockstep.sampler.forget(sessions)

    def _note(self, sealed: Sealed) -> None:
        if self.watcher:
            self.watcher.episode(sealed)
        if sealed.outcome is Outcome.INVALID:
            self.breaker.fault(sealed.reason)
        else:
            self.breaker.fine()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The episodes of a batch: `samples` of each row by the policy of this name; `noise` is what their seeds are made
    of, beside task, row and sample."""

    policy: str
    rows: Sequence[InstancePlan]
    samples: int
    noise: Sequence[str | int]

    def jobs(self, plan: str) -> list[Job]:
        """Row by row, in the order given."""
        made = []
        for row in self.rows:
            for sample in range(self.samples):
                key = seed("episode", *self.noise, row.task, row.row, sample)
                made.append(Job(EpisodeSpec(plan, row.task, row.row, sample, key, self.policy), row))
        return made


def _waves(jobs: Sequence[Job], width: int) -> Iterator[Sequence[Job]]:
    size = width or max(1, len(jobs))
    return (jobs[i : i + size] for i in range(0, len(jobs), size))
