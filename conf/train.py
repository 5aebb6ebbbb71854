"""The root of `guerdon train`'s configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from guerdon.conf import algorithm, learner, rollout, store, warm_start
from guerdon.conf.policy import MISSING
from guerdon.conf.run import hydra_settings, quiet

GROUPS: Mapping[str, Mapping[str, object]] = {
    "algorithm": algorithm.OPTIONS,
    "learner": learner.OPTIONS,
    "rollout": rollout.OPTIONS,
    "warm_start": warm_start.OPTIONS,
    "store": store.OPTIONS,
}


def _defaults() -> list[Any]:
    return [
        "_self_", {"algorithm": "grpo"}, {"learner": "small"}, {"rollout": "lockstep"}, {"warm_start": "oracle"},
        {"store": "local"}, *quiet(),
    ]


@dataclass
class EvaluateConf:
    """When the held-out rows are played; `every` 0: at the start and the end."""

    every: int = 10
    rows: int = 300
    """At most so many rows; 0 for no evaluation."""
    samples: int = 1
    """Episodes a row."""


@dataclass
class CheckpointConf:
    """A checkpoint after every so many steps, of which the newest few are kept."""

    every: int = 5
    keep: int = 2


@dataclass
class TrainConf:
    """What to train on and, in the groups, how."""

    defaults: list[Any] = field(default_factory=_defaults)
    seed: int = 0
    tasks: list[str] = field(default_factory=list)
    split: str = "train"
    """The rows that are learnt from; empty for all."""
    eval_split: str = "eval"
    """The rows that are only looked at; empty for all."""
    tracker: list[str] = field(default_factory=lambda: ["tensorboard"])
    """Where numbers go beside metrics.jsonl: tensorboard, wandb, mlflow."""
    reward: dict[str, Any] = field(default_factory=dict)
    """Weights, filled from the plan: `reward.<term>`, or `reward.<reward>.<term>` in a pack of several."""
    evaluate: EvaluateConf = field(default_factory=EvaluateConf)
    checkpoint: CheckpointConf = field(default_factory=CheckpointConf)
    algorithm: Any = MISSING
    learner: Any = MISSING
    rollout: Any = MISSING
    warm_start: Any = MISSING
    store: Any = MISSING
    hydra: Any = field(default_factory=lambda: hydra_settings("train"))
