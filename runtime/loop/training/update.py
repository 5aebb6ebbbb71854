"""From a step's sealed episodes to new weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from guerdon.runtime.contracts.learner import Learner, LossConfig, Row
from guerdon.runtime.contracts.trajectory import Outcome, Sealed
from guerdon.runtime.credit.advantages import Advantages, Group, advantages, permuted
from guerdon.runtime.credit.algorithms import ALGORITHMS
from guerdon.runtime.loop.training.config import AlgorithmConfig
from guerdon.runtime.loop.training.order import seed
from guerdon.runtime.loop.training.rows import row


@dataclass(frozen=True, slots=True)
class Update:
    """One step's learning; `seed` is the run's."""

    algorithm: AlgorithmConfig
    seed: int

    async def learn(self, learner: Learner, step: int, episodes: Sequence[Sealed]) -> dict[str, float]:
        """Update the learner from episodes, row by row; gives the last update's numbers. Raises LearnerFault."""
        groups = grouped(episodes, self.algorithm.group)
        given = self._advantages(step, groups)
        rows = [row(one, a) for one, a in zip(episodes, chain.from_iterable(given.values), strict=True)]
        found = {
            "zero_variance_groups": float(given.flat),
            "small_groups": float(given.small),
            "trained_groups": float(sum(given.trains)),
            "lr": self.rate(step),
        }
        if not any(given.trains):
            return found
        if self.algorithm.kl:
            rows = await _with_reference(learner, rows, self.algorithm.temperature)
        trained = chain.from_iterable((on,) * self.algorithm.group for on in given.trains)
        # Rows of groups that are skipped would count as tokens of no loss, and so dilute the others.
        kept = [one for one, on in zip(rows, trained, strict=True) if on]
        for _ in range(self.algorithm.updates):
            found.update(await learner.train_step(kept, self.loss(), self.rate(step)))
        if not self.algorithm.kl:
            del found["kl_reference"]  # there is no reference policy
        return found

    def loss(self) -> LossConfig:
        """The algorithm's loss with the constants that were asked for."""
        own = self.algorithm
        return replace(
            ALGORITHMS[own.name].loss, clip_low=own.clip_low, clip_high=own.clip_high, kl=own.kl, entropy=own.entropy,
            temperature=own.temperature, max_tokens=own.max_turn_tokens,
        )

    def rate(self, step: int) -> float:
        """The learning rate of a step (from 0)."""
        own = self.algorithm
        ramp = min(1.0, (step + 1) / max(1, own.warmup_steps))
        fall = 1.0 - (1.0 - own.lr_floor) * step / max(1, own.steps - 1)
        return own.lr * ramp * fall

    def _advantages(self, step: int, groups: Sequence[Group]) -> Advantages:
        rule = ALGORITHMS[self.algorithm.name].advantage
        made = advantages(rule, groups, keep_flat=self.algorithm.zero_variance == "keep")
        return permuted(made, groups, seed("permute", self.seed, step)) if self.algorithm.permute else made


def grouped(episodes: Sequence[Sealed], size: int) -> list[Group]:
    """The episodes of each row as a group."""
    made = []
    for at in range(0, len(episodes), size):
        part = episodes[at : at + size]
        spec = part[0].trajectory.episode
        valid = tuple(one.outcome is not Outcome.INVALID and one.reward is not None for one in part)
        rewards = tuple(one.reward.value if one.reward is not None else 0.0 for one in part)
        made.append(Group(f"{spec.task}/{spec.row}", rewards, valid))
    return made


async def _with_reference(learner: Learner, rows: Sequence[Row], temperature: float) -> list[Row]:
    found = await learner.reference(rows, temperature)
    return [
        replace(one, reference=tuple(lp if on else 0.0 for lp, on in zip(logprobs, one.mask, strict=True)))
        for one, logprobs in zip(rows, found, strict=True)
    ]
