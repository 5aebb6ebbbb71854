"""Advantages from verified rewards: pure functions of plain numbers; an invalid episode has no part in any of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

EPSILON = 1e-6
"""Added to a deviation, so that it is never divided by 0 (verl's 1e-6; TRL adds 1e-4)."""


@dataclass(frozen=True, slots=True)
class Group:
    """The episodes of one row in one step: their rewards, and which of them are valid."""

    key: str
    rewards: tuple[float, ...]
    valid: tuple[bool, ...]

    def kept(self) -> list[float]:
        """The rewards of the valid episodes."""
        return [reward for reward, fine in zip(self.rewards, self.valid, strict=True) if fine]


@dataclass(frozen=True, slots=True)
class Advantages:
    """One advantage for each episode of each group (0.0 for an invalid one), which groups train, and what was counted.

    `flat` are groups whose valid rewards are all equal, `small` those with fewer than two valid episodes.
    """

    values: tuple[tuple[float, ...], ...]
    trains: tuple[bool, ...]
    flat: int
    small: int


Rule = Callable[[Sequence[Sequence[float]]], list[list[float]]]
"""Advantages of the valid rewards, group by group."""


def normalised(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """(r - mean) / (deviation + EPSILON) within the group (DeepSeekMath, 4.1.2), with the sample deviation as TRL."""
    made = []
    for rewards in groups:
        mean = _mean(rewards)
        deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / max(1, len(rewards) - 1))
        made.append([(r - mean) / (deviation + EPSILON) for r in rewards])
    return made


def centred(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """r - mean within the group, without the deviation (Dr. GRPO; Liu et al. 2025, 3.2)."""
    made = []
    for rewards in groups:
        mean = _mean(rewards)
        made.append([r - mean for r in rewards])
    return made


def leave_one_out(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """r - the mean of the others (RLOO; Kool et al. 2019, Ahmadian et al. 2024, eq. 6)."""
    made = []
    for rewards in groups:
        others = len(rewards) - 1
        total = math.fsum(rewards)
        made.append([r - (total - r) / others if others else 0.0 for r in rewards])
    return made


def whitened(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """r - the group's mean, then divided by the deviation over the whole batch (REINFORCE++-baseline; Hu 2025, 3.2)."""
    parts = centred(groups)
    flat = [a for part in parts for a in part]
    mean = _mean(flat)
    deviation = math.sqrt(math.fsum((a - mean) ** 2 for a in flat) / max(1, len(flat) - 1))
    return [[(a - mean) / (deviation + EPSILON) for a in part] for part in parts]


RULES: Mapping[str, Rule] = {
    "normalised": normalised,
    "centred": centred,
    "leave_one_out": leave_one_out,
    "whitened": whitened,
}


def advantages(rule: str, groups: Sequence[Group], keep_flat: bool = False) -> Advantages:
    """The advantages of a step's groups.

    Groups of fewer than two valid episodes never train; those whose valid rewards are all equal carry no signal and are
    skipped, unless `keep_flat`. `rule` is a row of RULES; KeyError for another, ValueError where a group's rewards and
    `valid` differ in length.
    """
    kept = [group.kept() for group in groups]
    small = [len(rewards) < 2 for rewards in kept]
    flat = [not tiny and max(rewards) == min(rewards) for tiny, rewards in zip(small, kept, strict=True)]
    trains = [not tiny and (keep_flat or not even) for tiny, even in zip(small, flat, strict=True)]
    made = iter(RULES[rule]([rewards for rewards, on in zip(kept, trains, strict=True) if on]))
    values = tuple(
        _spread(group, next(made)) if on else (0.0,) * len(group.rewards)
        for group, on in zip(groups, trains, strict=True)
    )
    return Advantages(values, tuple(trains), sum(flat), sum(small))


def permuted(given: Advantages, groups: Sequence[Group], seed: int) -> Advantages:
    """The control: each group's advantages dealt out anew among its valid episodes, which says nothing of any of them.

    The same seed and the same groups in the same order give the same deal.
    """
    rng = random.Random(seed)
    values = []
    for group, own in zip(groups, given.values, strict=True):
        dealt = [a for a, fine in zip(own, group.valid, strict=True) if fine]
        rng.shuffle(dealt)
        values.append(_spread(group, dealt))
    return Advantages(tuple(values), given.trains, given.flat, given.small)


def _spread(group: Group, dealt: Sequence[float]) -> tuple[float, ...]:
    left = iter(dealt)
    return tuple(next(left) if fine else 0.0 for fine in group.valid)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
