"""One training run from its configuration to its report: warm start or last checkpoint, the loop, the summary."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.renderer import Renderer
from guerdon.runtime.contracts.sampling import Sampling
from guerdon.runtime.contracts.sandbox import SandboxProvider
from guerdon.runtime.learner.fit import threads
from guerdon.runtime.learner.ranks import Ranks
from guerdon.runtime.learner.shape import LearnerConfig
from guerdon.runtime.loop.config import RunConfig, RunError, selected
from guerdon.runtime.loop.run import DONE, SUMMARY, Watcher, claim
from guerdon.runtime.loop.training import checkpoints, warm
from guerdon.runtime.loop.training.collect import Collector
from guerdon.runtime.loop.training.config import TrainConfig
from guerdon.runtime.loop.training.demonstrations import Demonstrators, when_free
from guerdon.runtime.loop.training.loop import Training
from guerdon.runtime.loop.training.records import Records, read
from guerdon.runtime.loop.training.reporting import refresh
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.policy.lockstep import Lockstep
from guerdon.runtime.policy.trained import Trained
from guerdon.runtime.report.trackers import Tracker
from guerdon.runtime.schedule.executor import default_admission
from guerdon.runtime.schedule.retry import Breaker
from guerdon.runtime.schedule.stop import Stop, unless_stopped
from guerdon.runtime.store.durable import write_atomically, writing
from guerdon.runtime.store.journal import take_lock


@dataclass(frozen=True, slots=True)
class Place:
    """Where and under whose eyes a run goes on."""

    plan: LoadedPlan
    cfg: TrainConfig
    out: Path
    provider: SandboxProvider | None
    renderer: Renderer
    trackers: tuple[Tracker, ...] = ()
    watcher: Watcher | None = None
    stop: Stop | None = None
    demonstrations: LoadedPlan | None = None
    """The plan that demonstrations are played with, where it is another than the plan that is trained on (of other
    reward weights, which change no demonstration)."""
    side_by_side: int = 1
    """Jobs that share this machine: where nobody says how many threads and sandboxes, each takes its part."""

    def say(self, text: str) -> None:
        """Tell people."""
        if self.watcher:
            self.watcher.note(text)


async def train(place: Place) -> Mapping[str, Any]:
    """Train from where the run folder stands to the end; gives what summary.json then holds.

    Raises RunError, LearnerFault, HostFault, StoreFault, AssetFault, PolicyFault and Interrupted; whatever ends it, the
    same call goes on from the last checkpoint.
    """
    began = time.monotonic()
    with _held(place.out):
        claim(place.out, place.plan)
        training = await unless_stopped(_trained(place), place.stop)
        summary = summed(place, training.episodes, time.monotonic() - began)
        with writing(place.out):
            write_atomically(place.out / SUMMARY, [json.dumps(summary, indent=2).encode() + b"\n"])
            refresh(place.out, place.say)
            write_atomically(place.out / DONE, [b""])
    return summary


async def _trained(place: Place) -> Training:
    model = await Ranks.start(_sharing(place))
    try:
        training = _training(place, model)
        await training.go_on(await _begun(place, model, training.records))
        return training
    finally:
        await model.close()


def _sharing(place: Place) -> LearnerConfig:
    learner = place.cfg.learner
    return replace(learner, threads=threads(learner.threads, learner.parallel.ranks * place.side_by_side))


async def evaluate_checkpoint(place: Place, checkpoint: Path) -> dict[str, float]:
    """What a checkpoint's policy comes to on the held-out rows, with the run's noise; `place.out` gets the episodes.
    Raises as `train`."""
    with _held(place.out):
        claim(place.out, place.plan)
        model = await Ranks.start(place.cfg.learner)
        try:
            training = _training(place, model)
            await model.load(checkpoint)
            await model.publish()
            return await unless_stopped(training.evaluate(0), place.stop)
        finally:
            await model.close()


def _training(place: Place, model: Ranks) -> Training:
    cfg = place.cfg
    algorithm = cfg.algorithm
    sampling = Sampling(algorithm.max_turn_tokens, algorithm.temperature, algorithm.top_p, place.renderer.stop)
    lockstep = Lockstep(model)
    policy = Trained("policy", lockstep, place.renderer, sampling, model.shape.context)
    run_cfg = RunConfig(retries=cfg.rollout.retries, give_up_after=cfg.rollout.give_up_after)
    shop = Workshop(place.plan, policy, run_cfg, place.provider, tell=place.say)
    return Training(
        cfg, place.out, model,
        Collector(shop, policy, Breaker(cfg.rollout.give_up_after), cfg.rollout.width, place.watcher),
        Records(place.out, place.trackers),
        rows_of(place.plan, cfg, cfg.split),
        rows_of(place.plan, cfg, cfg.eval_split, cfg.evaluate.rows) if cfg.evaluate.rows else [],
        looked_at=lambda: refresh(place.out, place.say),
    )


async def _begun(place: Place, model: Ranks, records: Records) -> int:
    """Load the newest checkpoint, or make the first: the step to go on from."""
    made = checkpoints.steps(place.out)
    if made:
        step = made[-1]
        await model.load(checkpoints.folder(place.out, step))
        records.back_to(step if step else -1)
        place.say(f"going on from the checkpoint after {step} updates")
        return step
    records.back_to(-(10**9))
    if place.cfg.warm_start:
        await _warmed(place, model, records)
    if place.cfg.algorithm.kl:
        await model.keep_reference()
    await checkpoints.save(model, place.out, 0, place.cfg.checkpoint.keep)
    return 0


async def _warmed(place: Place, model: Ranks, records: Records) -> None:
    """The supervised start, or the one that another run of the same demonstrations and settings has made already."""
    cfg = place.cfg
    run_cfg = RunConfig(
        tasks=cfg.tasks, split=cfg.split, retries=cfg.rollout.retries, give_up_after=cfg.rollout.give_up_after,
        concurrency=max(1, default_admission() // place.side_by_side),
    )
    demonstrators = Demonstrators(
        place.demonstrations or place.plan, run_cfg, place.provider, place.out.parent, place.watcher
    )
    stages = await warm.stages(cfg.warm_start, demonstrators, place.renderer, model.shape.context, cfg.seed)
    kept = place.out.parent / f"warm-{warm.identity(stages, cfg)[:20]}"
    async with _alone(kept):
        if (kept / DONE).exists():
            place.say(f"the supervised start is in {kept} already")
            await model.load(kept / "checkpoint")
        else:
            await _learnt(place, model, stages, kept)
        for line in read(kept):
            records.log(int(line["step"]), "warm", {k: float(v) for k, v in line.items() if k not in ("step", "kind")})


async def _learnt(place: Place, model: Ranks, stages: list[warm.Stage], kept: Path) -> None:
    own = Records(kept)
    own.back_to(-(10**9))
    total = sum(stage.config.steps for stage in stages)

    def log(step: int, values: Mapping[str, float]) -> None:
        own.log(step, "warm", values)
        if "likelihood" in values:
            place.say(f"supervised step {total + step + 1} of at most {total}: loss {values['loss']:.3f}, "
                      f"held-out demonstrations {values['likelihood']:.3f} likely")

    await warm.learn(model, stages, place.cfg.seed, log)
    await model.renew()
    await checkpoints.fresh(model, kept / "checkpoint")
    write_atomically(kept / DONE, [b""])


def rows_of(plan: LoadedPlan, cfg: TrainConfig, split: str, first: int = 0) -> list[InstancePlan]:
    """The rows of a split. Raises RunError where none is selected."""
    found = list(selected(plan.instances(), RunConfig(tasks=cfg.tasks, split=split, first=first)))
    if not found:
        raise RunError(f"the pack {plan.plan.pack} has no row in the split {split!r}; look at split and eval_split")
    return found


def summed(place: Place, episodes: int, spent: float) -> dict[str, Any]:
    """What a run came to."""
    evals = [line for line in read(place.out) if line["kind"] == "eval"]
    trained = [line for line in read(place.out) if line["kind"] == "train"]
    return {
        "plan": place.plan.digest, "algorithm": place.cfg.algorithm.name, "seed": place.cfg.seed,
        "steps": len(trained), "complete": True, "ran": episodes, "seconds": round(spent, 3),
        "solve_rate": {str(line["step"]): line.get("solve_rate") for line in evals},
        "invalid": sum(round(float(line["invalid_share"]) * float(line["episodes"])) for line in evals + trained),
    }


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    handle = take_lock(folder)
    try:
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def _alone(folder: Path) -> AsyncIterator[None]:
    """Hold a folder that other runs may want too, waiting for them."""
    handle = await when_free(lambda: take_lock(folder))
    try:
        yield
    finally:
        os.close(handle)
