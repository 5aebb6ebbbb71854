"""The supervised start: `warm_start=none`, `oracle`, or `habits`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class StageConf:
    """One stage: demonstrations of these policies in these shares, learnt for at most so many steps."""

    sources: dict[str, float] = field(default_factory=dict)
    episodes: int = 2600
    steps: int = 1200
    batch: int = 64
    lr: float = 2e-3
    decay: bool = True
    """Whether the learning rate falls in a straight line."""
    until: float = 0.0
    """End the stage once held-out demonstrations are this likely; 0 for all steps."""


@dataclass
class WarmStartConf:
    """Stages, one after the other."""

    stages: list[StageConf] = field(default_factory=list)


def _oracle() -> StageConf:
    return StageConf({"oracle": 1.0}, until=0.95)


def _habits() -> StageConf:
    return StageConf({"oracle": 0.3, "exploit": 0.7}, episodes=500, steps=60, lr=3e-4, decay=False)


OPTIONS: Mapping[str, object] = {
    "none": WarmStartConf(),
    "oracle": WarmStartConf([_oracle()]),
    "habits": WarmStartConf([_oracle(), _habits()]),
}
