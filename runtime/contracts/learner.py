"""What a learner takes and gives: rows of token ids with masks, log-probabilities and advantages; metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Row:
    """One trajectory as the learner takes it; every tuple is as long as `ids`.

    `mask` is 1 where an id was sampled and trains (never at position 0), 0 at prompts and observations, and 0
    everywhere in an invalid trajectory. `logprobs` (the sampler's) and `advantages` are 0.0 where `mask` is 0; so is
    `reference`, which is empty where no reference policy is used.
    """

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    reference: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Which loss, and its constants; `name` is a row of `guerdon.runtime.learner.losses.LOSSES`."""

    name: str = "grpo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    """Weight of the estimate of KL(policy || reference): k3, of `reinforce_pp` k2."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    temperature: float = 1.0
    """The temperature at which the rows were sampled: log-probabilities are of softmax(logits / temperature)."""
    max_tokens: int = 0
    """The constant by which Dr. GRPO divides a row's sum; 0 where the loss needs none."""


@dataclass(frozen=True, slots=True)
class WeightsRef:
    """Published weights: how many updates they have had, and the sha256 of their names, shapes and bytes."""

    version: int
    digest: str


class LearnerFault(Exception):
    """The learner cannot go on (a dead rank, a damaged checkpoint, numbers not finite): what, and the remedy."""


class Learner(Protocol):
    """The controller's view of a learner of any number of ranks. Every method raises LearnerFault."""

    async def logprobs(self, rows: Sequence[Row], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each id given those before it (0.0 at position 0), for every row."""
        ...

    async def train_step(self, rows: Sequence[Row], loss: LossConfig, lr: float) -> Mapping[str, float]:
        """One update. Metrics: `loss`, `grad_norm`, `tokens` (sampled ids, all ranks), `entropy`, `clip_share`,
        `kl` (k1 of policy to sampler, mean a token), `kl_reference`, `ratio_max`."""
        ...

    async def renew(self) -> None:
        """Keep the weights, forget the optimizer's state and count updates from 0: a supervised start has ended."""
        ...

    async def keep_reference(self) -> None:
        """Remember the present weights as the reference policy."""
        ...

    async def reference(self, rows: Sequence[Row], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """`logprobs` under the reference policy."""
        ...

    async def publish(self) -> WeightsRef:
        """Make the present weights those that are sampled from."""
        ...

    async def save(self, folder: Path) -> None:
        """Write a checkpoint (model, optimizer, RNG, version) into a new folder, durably."""
        ...

    async def load(self, folder: Path) -> None:
        """Go on from a checkpoint, at the same or another number of ranks."""
        ...

    async def export_hf(self, folder: Path) -> None:
        """Write the weights in the layout of Hugging Face (safetensors and config.json)."""
        ...

    async def close(self) -> None:
        """End every rank; safe to call twice."""
        ...
