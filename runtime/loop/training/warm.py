"""The supervised start: demonstrations that were played in real sandboxes, learnt until they are likely enough."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.schema import Plan
from guerdon.runtime.contracts.learner import Learner, LossConfig, Row
from guerdon.runtime.contracts.renderer import Renderer
from guerdon.runtime.contracts.trajectory import Sealed
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.training.config import StageConfig, TrainConfig
from guerdon.runtime.loop.training.demonstrations import Demonstrators
from guerdon.runtime.loop.training.order import seed, taken
from guerdon.runtime.loop.training.rows import demonstration, fitting

HELD_OUT = 64
"""Demonstrations, at most a tenth of all, that are not learnt but looked at."""
LOOK_EVERY = 20
"""Steps between two looks at them."""
RAMP = 10
"""Steps over which the learning rate rises."""
FLOOR = 0.1
"""What a decaying learning rate ends at, of what it began with."""


SUPERVISED = ("loss", "grad_norm", "tokens", "entropy")
"""The learner's numbers that mean something where nothing was sampled."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage with its rows: those that are learnt, and those that are only looked at."""

    config: StageConfig
    rows: Sequence[Row]
    held: Sequence[Row]


async def stages(
    wanted: Sequence[StageConfig], demonstrators: Demonstrators, renderer: Renderer, context: int, run_seed: int,
) -> list[Stage]:
    """Play (or find played) what every stage needs. Raises RunError, and what running a policy raises."""
    played: dict[str, list[Sealed]] = {}
    for policy in sorted({name for stage in wanted for name in stage.sources}):
        count = max(_share(stage, policy) for stage in wanted)
        played[policy] = await demonstrators.episodes(policy, count)
    make = _Maker(played, demonstrators.plan.plan, renderer, context, run_seed)
    return [make.stage(i, stage) for i, stage in enumerate(wanted)]


def _share(stage: StageConfig, policy: str) -> int:
    """How many episodes of a policy a stage takes."""
    whole = math.fsum(stage.sources.values())
    return round(stage.episodes * stage.sources.get(policy, 0.0) / whole)


@dataclass(frozen=True, slots=True)
class _Maker:
    """From what was played to the rows of stages."""

    played: Mapping[str, Sequence[Sealed]]
    plan: Plan
    renderer: Renderer
    context: int
    seed: int

    def stage(self, index: int, stage: StageConfig) -> Stage:
        """The rows of a stage, shuffled, some held out. Raises RunError where too few fit."""
        episodes = [one for policy in sorted(stage.sources) for one in self.played[policy][: _share(stage, policy)]]
        rows, dropped = fitting(map(self._row, episodes), self.context)
        if len(rows) < 2:
            raise RunError(
                f"stage {index} of warm_start has {len(rows)} demonstration(s) that fit {self.context} ids "
                f"({dropped} do not); give learner.context more room, or ask for more episodes"
            )
        random.Random(seed("demonstrations", self.seed, index)).shuffle(rows)
        held = min(HELD_OUT, len(rows) // 10)
        return Stage(stage, rows[held:], rows[:held])

    def _row(self, episode: Sealed) -> Row:
        spec = episode.trajectory.episode
        try:
            return demonstration(episode, self.renderer, self.plan.tasks[spec.task].tools)
        except ValueError as wrong:
            raise RunError(f"the demonstration {spec.key} cannot be learnt: {wrong}") from wrong


def identity(made: Sequence[Stage], cfg: TrainConfig) -> str:
    """The hexadecimal digest of all that is learnt, how, and by which model."""
    learnt = [[[list(row.ids), list(row.mask)] for row in stage.rows] for stage in made]
    # The settings hold floats, whose shortest decimal is as good a name as any.
    settings = [repr(stage.config) for stage in made]
    return digest(dumps([settings, repr(replace(cfg.learner, threads=0)), cfg.seed, learnt])).removeprefix("sha256:")


async def learn(
    learner: Learner, made: Sequence[Stage], run_seed: int, log: Callable[[int, Mapping[str, float]], None],
) -> None:
    """Go through the stages. `log` gets a step, counted up to 0 where reinforcement begins, and its numbers."""
    left = sum(stage.config.steps for stage in made)
    for index, stage in enumerate(made):
        await _learn(learner, stage, seed("warm", run_seed, index), -left, log)
        left -= stage.config.steps


async def _learn(
    learner: Learner, stage: Stage, order: int, first: int, log: Callable[[int, Mapping[str, float]], None],
) -> None:
    config = stage.config
    loss = LossConfig("supervised")
    for step in range(config.steps):
        rows = taken(stage.rows, step, min(config.batch, len(stage.rows)), order)
        found = {
            key: value for key, value in (await learner.train_step(rows, loss, rate(config, step))).items()
            if key in SUPERVISED
        }
        if (step + 1) % LOOK_EVERY == 0 and stage.held:
            found["likelihood"] = await likelihood(learner, stage.held)
        log(first + step, found)
        if config.until and found.get("likelihood", 0.0) >= config.until:
            return


def rate(config: StageConfig, step: int) -> float:
    """The learning rate of a step: a short ramp, then level or falling in a straight line."""
    ramp = min(1.0, (step + 1) / RAMP)
    fall = 1.0 - (1.0 - FLOOR) * step / max(1, config.steps - 1) if config.decay else 1.0
    return config.lr * ramp * fall


async def likelihood(learner: Learner, rows: Sequence[Row]) -> float:
    """The mean probability that sampling gives a whole demonstration, token for token: a floor under the solve rate,
    read off without a sandbox."""
    found = await learner.logprobs(rows)
    whole = [
        math.exp(math.fsum(lp for lp, on in zip(logprobs, row.mask, strict=True) if on))
        for logprobs, row in zip(found, rows, strict=True)
    ]
    return math.fsum(whole) / len(whole)
