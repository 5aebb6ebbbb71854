"""One batch of episodes in lockstep: all of a wave begin together, each turn is one batch of the sampler."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Outcome, Sealed
from guerdon.runtime.loop.episode import Job, run_episode
from guerdon.runtime.loop.run import Watcher
from guerdon.runtime.loop.training.order import seed
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.policy.lockstep import Lockstep
from guerdon.runtime.policy.trained import session
from guerdon.runtime.schedule.executor import run_jobs
from guerdon.runtime.schedule.retry import Breaker
from guerdon.runtime.schedule.stop import Stop
from guerdon.runtime.store.durable import writing
from guerdon.runtime.store.journal import FileJournal


@dataclass(frozen=True, slots=True)
class Collector:
    """What all batches of a training run share. `width` bounds the episodes that are alive at once (0: all)."""

    shop: Workshop
    lockstep: Lockstep
    breaker: Breaker
    width: int
    stop: Stop | None
    watcher: Watcher | None

    async def collect(self, title: str, jobs: Sequence[Job], folder: Path) -> list[Sealed]:
        """Run every job, in the order given; what is in the folder of an earlier try is dropped first.

        A batch is done wholly or anew: part of one, gone on with, would be sampled in other company than the whole.
        Raises LearnerFault, HostFault, StoreFault, AssetFault, Interrupted.
        """
        with writing(folder):
            shutil.rmtree(folder, ignore_errors=True)
        if self.watcher:
            self.watcher.begin(title, len(jobs), 0)
        done: dict[str, Sealed] = {}
        with FileJournal(folder) as journal:
            for wave in _waves(jobs, self.width):
                await self._wave(wave, journal, done)
        return [done[job.spec.key] for job in jobs]

    async def _wave(self, wave: Sequence[Job], journal: FileJournal, done: dict[str, Sealed]) -> None:
        sessions = [session(job.spec.seed) for job in wave]
        self.lockstep.begin(sessions)

        async def work(job: Job) -> None:
            try:
                sealed = await run_episode(self.shop, job)
            finally:
                self.lockstep.leave(session(job.spec.seed))
            if self.lockstep.fault is not None:
                raise LearnerFault(str(self.lockstep.fault))
            self._note(sealed)
            journal.seal(sealed)
            done[job.spec.key] = sealed

        await run_jobs(iter(wave), work, len(wave), self.stop)
        await self.lockstep.sampler.forget(sessions)

    def _note(self, sealed: Sealed) -> None:
        if self.watcher:
            self.watcher.episode(sealed)
        if sealed.outcome is Outcome.INVALID:
            self.breaker.fault(sealed.reason)
        else:
            self.breaker.fine()


def jobs(
    plan: str, policy: str, rows: Sequence[InstancePlan], samples: int, noise: Sequence[str | int]
) -> list[Job]:
    """The episodes of a batch; `noise` is what the seeds are made of, beside task, row and sample."""
    made = []
    for row in rows:
        for sample in range(samples):
            key = seed("episode", *noise, row.task, row.row, sample)
            made.append(Job(EpisodeSpec(plan, row.task, row.row, sample, key, policy), row))
    return made


def _waves(jobs: Sequence[Job], width: int) -> Iterator[Sequence[Job]]:
    size = width or max(1, len(jobs))
    return (jobs[i : i + size] for i in range(0, len(jobs), size))
