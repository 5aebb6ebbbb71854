"""`guerdon train`: rollouts, advantages, an update, new weights; again and again, gone on with at any step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.learner import Learner
from guerdon.runtime.contracts.sampling import Sampler
from guerdon.runtime.contracts.trajectory import Sealed
from guerdon.runtime.loop.training import checkpoints
from guerdon.runtime.loop.training.collect import Collector, Wanted
from guerdon.runtime.loop.training.config import TrainConfig
from guerdon.runtime.loop.training.measures import measures, seconds
from guerdon.runtime.loop.training.order import taken
from guerdon.runtime.loop.training.records import Records
from guerdon.runtime.loop.training.update import Update


class Model(Learner, Sampler, Protocol):
    """What is trained and sampled at once."""


@dataclass(slots=True)
class Training:
    """One run under way."""

    cfg: TrainConfig
    out: Path
    model: Model
    collector: Collector
    records: Records
    rows: Sequence[InstancePlan]
    held_out: Sequence[InstancePlan]
    times: dict[str, float] = field(default_factory=dict)
    episodes: int = 0
    """Episodes that this process ran."""
    looked_at: Callable[[], None] = lambda: None
    """Called after each evaluation of a training."""

    async def go_on(self, step: int) -> None:
        """From `step` updates to the last. Raises LearnerFault, HostFault, StoreFault, AssetFault."""
        cfg = self.cfg
        await self.model.publish()
        if step == 0:
            await self.evaluate(0)
            self.looked_at()
        while step < cfg.algorithm.steps:
            await self.step(step)
            step += 1
            last = step == cfg.algorithm.steps
            if last or (cfg.evaluate.every and step % cfg.evaluate.every == 0):
                await self.evaluate(step)
                self.looked_at()
            if last or step % cfg.checkpoint.every == 0:
                with self.timed("checkpoint"):
                    await checkpoints.save(self.model, self.out, step, cfg.checkpoint.keep)

    async def step(self, step: int) -> None:
        """Rollouts, advantages, updates, new weights."""
        cfg = self.cfg
        rows = taken(self.rows, step, cfg.algorithm.prompts, cfg.seed)
        with self.timed("rollout"):
            wanted = Wanted(f"policy@{step}", rows, cfg.algorithm.group, ("train", cfg.seed, step))
            episodes = await self.collector.collect(
                f"step {step + 1} of {cfg.algorithm.steps}", wanted, self.folder("train", step + 1)
            )
        with self.timed("learn"):
            learnt = await Update(cfg.algorithm, cfg.seed).learn(self.model, step, episodes)
        with self.timed("publish"):
            await self.model.publish()
        self.record("train", step + 1, episodes, learnt)

    async def evaluate(self, step: int) -> dict[str, float]:
        """The measures on the held-out rows, with the same noise in every evaluation of a run."""
        if not self.held_out:
            return {}
        with self.timed("evaluate"):
            wanted = Wanted(f"eval@{step}", self.held_out, self.cfg.evaluate.samples, ("eval", self.cfg.seed))
            title = f"held-out rows after {step} update{'s' if step != 1 else ''}"
            episodes = await self.collector.collect(title, wanted, self.folder("eval", step))
        return self.record("eval", step, episodes, {})

    def folder(self, kind: str, step: int) -> Path:
        """Where the sealed episodes of a batch lie."""
        return self.out / "rollouts" / f"{kind}-{step:06d}"

    def record(self, kind: str, step: int, episodes: Sequence[Sealed], learnt: Mapping[str, float]) -> dict[str, float]:
        """Write the numbers of a step; its times, which no two runs share, go elsewhere."""
        self.episodes += len(episodes)
        found = {**measures(episodes), **learnt}
        self.records.log(step, kind, found)
        self.records.spent(step, kind, {**self.times, **seconds(episodes)})
        self.times.clear()
        return found

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note how long a stage takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.times[f"seconds/{stage}"] = self.times.get(f"seconds/{stage}", 0.0) + time.monotonic() - began
