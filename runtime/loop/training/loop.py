"""`guerdon train`: warm start, then rollouts, advantages, an update, new weights; again and again, without loss."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.learner import Learner
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.sampling import Sampler, Sampling
from guerdon.runtime.contracts.trajectory import Sealed
from guerdon.runtime.loop.config import RunConfig, RunError, selected
from guerdon.runtime.loop.training import checkpoints
from guerdon.runtime.loop.training.collect import Collector, jobs
from guerdon.runtime.loop.training.config import TrainConfig
from guerdon.runtime.loop.training.measures import measures, seconds
from guerdon.runtime.loop.training.order import taken
from guerdon.runtime.loop.training.records import Records
from guerdon.runtime.loop.training.update import Update
from guerdon.runtime.policy.trained import Trained


class TrainedModel(Learner, Sampler):
    """What is trained and sampled at once."""


@dataclass(slots=True)
class Training:
    """One run under way."""

    plan: LoadedPlan
    cfg: TrainConfig
    out: Path
    model: TrainedModel
    collector: Collector
    records: Records
    rows: Sequence[InstancePlan]
    held_out: Sequence[InstancePlan]
    sampling: Sampling
    times: dict[str, float] = field(default_factory=dict)

    async def go_on(self, step: int) -> None:
        """From `step` updates to the last. Raises LearnerFault, HostFault, StoreFault, AssetFault."""
        await self.model.publish()
        if step == 0:
            await self.evaluate(0)
        while step < self.cfg.algorithm.steps:
            await self.step(step)
            step += 1
            last = step == self.cfg.algorithm.steps
            if last or (self.cfg.evaluate.every and step % self.cfg.evaluate.every == 0):
                await self.evaluate(step)
            if last or step % self.cfg.checkpoint.every == 0:
                with self.timed("checkpoint"):
                    await checkpoints.save(self.model, self.out, step, self.cfg.checkpoint.keep)

    async def step(self, step: int) -> None:
        """Rollouts, advantages, updates, new weights."""
        algorithm = self.cfg.algorithm
        rows = taken(self.rows, step, algorithm.prompts, self.cfg.seed)
        with self.timed("rollout"):
            episodes = await self.collect(f"step {step + 1} of {algorithm.steps}", f"policy@{step}", rows,
                                          algorithm.group, ("train", self.cfg.seed, step), f"train-{step + 1:06d}")
        update = Update(self.cfg, self.model)
        with self.timed("learn"):
            learnt = await update.learn(step, episodes)
        with self.timed("publish"):
            await self.model.publish()
        self.record("train", step + 1, episodes, learnt)

    async def evaluate(self, step: int) -> None:
        """The solve rate on the held-out rows, with the noise of every other evaluation of this run."""
        if not self.held_out:
            return
        with self.timed("evaluate"):
            episodes = await self.collect(
                f"held-out rows after {step} updates", f"eval@{step}", self.held_out, self.cfg.evaluate.samples,
                ("eval", self.cfg.seed), f"eval-{step:06d}",
            )
        self.record("eval", step, episodes, {})

    async def collect(
        self, title: str, policy: str, rows: Sequence[InstancePlan], samples: int, noise: Sequence[str | int],
        folder: str,
    ) -> list[Sealed]:
        """One batch of episodes, sealed under `rollouts/`."""
        shop = self.collector.shop
        assert isinstance(shop.policy, Trained)
        shop.policy = Trained(policy, shop.policy.lockstep, shop.policy.renderer, self.sampling)
        wanted = jobs(self.plan.digest, policy, rows, samples, noise)
        return await self.collector.collect(title, wanted, self.out / "rollouts" / folder)

    def record(self, kind: str, step: int, episodes: Sequence[Sealed], learnt: Mapping[str, float]) -> None:
        """Write the numbers of a step; its times, which no two runs share, go elsewhere."""
        self.records.log(step, kind, {**measures(episodes), **learnt})
        self.records.spent(step, kind, {**self.times, **seconds(episodes)})
        self.times.clear()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note how long a stage takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.times[f"seconds/{stage}"] = self.times.get(f"seconds/{stage}", 0.0) + time.monotonic() - began


def rows_of(plan: LoadedPlan, cfg: TrainConfig, split: str, first: int = 0) -> list[InstancePlan]:
    """The rows of a split. Raises RunError where none is selected."""
    found = list(selected(plan.instances(), RunConfig(tasks=cfg.tasks, split=split, first=first)))
    if not found:
        raise RunError(f"the pack {plan.plan.pack} has no row in the split {split!r}; look at tasks, split and eval_split")
    return found


