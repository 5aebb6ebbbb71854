"""How a policy is trained: all that is asked of a run, and what of it decides its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from guerdon.runtime.learner.shape import LearnerConfig


@dataclass(frozen=True, slots=True)
class AlgorithmConfig:
    """What is learnt from a step's episodes, and how fast; `name` is a row of `credit.algorithms.ALGORITHMS`."""

    name: str = "grpo"
    steps: int = 30
    prompts: int = 16
    """Rows a step."""
    group: int = 8
    """Episodes a row."""
    lr: float = 3e-4
    warmup_steps: int = 5
    """Steps over which the learning rate rises."""
    lr_floor: float = 1.0
    """What the learning rate falls to by the last step, in a straight line, as a share of itself."""
    updates: int = 1
    """Updates a step, all on the same episodes."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    entropy: float = 0.0
    zero_variance: str = "skip"
    """`skip` or `keep` groups whose rewards are all equal."""
    temperature: float = 1.0
    top_p: float = 1.0
    max_turn_tokens: int = 64
    """Ids that a turn may have at most."""
    permute: bool = False
    """The control: advantages are dealt out at random within each group, so nothing can be learnt."""


@dataclass(frozen=True, slots=True)
class StageConfig:
    """One stage of the supervised start; `sources` are policies and their shares of the demonstrations."""

    sources: Mapping[str, float]
    episodes: int = 1000
    steps: int = 400
    batch: int = 64
    lr: float = 2e-3
    decay: bool = True
    until: float = 0.0
    """End the stage once held-out demonstrations are this likely (0: after all steps)."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """How episodes are run; `width` are those alive at once, 0 for all of a step."""

    width: int = 64
    retries: int = 2
    give_up_after: int = 8


@dataclass(frozen=True, slots=True)
class EvaluateConfig:
    """When and on how many held-out rows the policy is looked at; `every` 0: at the start and the end."""

    every: int = 10
    rows: int = 300
    samples: int = 1


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """A checkpoint after every so many steps, of which the newest few are kept."""

    every: int = 5
    keep: int = 2


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One training run."""

    seed: int = 0
    tasks: tuple[str, ...] = ()
    split: str = "train"
    eval_split: str = "eval"
    renderer: str = "compact"
    tracker: tuple[str, ...] = ("tensorboard",)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    warm_start: tuple[StageConfig, ...] = ()
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
