"""The losses: one pure function each, of per-token tensors; and the factor that each row's tokens are summed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from guerdon.runtime.contracts.learner import LossConfig


@dataclass(frozen=True, slots=True)
class Tokens:
    """A micro-batch as the losses see it; every tensor is float32 [rows, positions], 0 where `mask` is 0.

    `old` are the sampler's log-probabilities, `reference` the reference policy's (None where there is none),
    `row_sum` sums over a row's positions on all context-parallel ranks: [rows, 1], differentiable.
    """

    logprobs: Tensor
    old: Tensor
    advantages: Tensor
    mask: Tensor
    reference: Tensor | None
    entropy: Tensor | None
    row_sum: Callable[[Tensor], Tensor]


Loss = Callable[[Tokens, LossConfig], tuple[Tensor, dict[str, Tensor]]]
"""The loss of each token, [rows, positions], and detached statistics of the same shape: `clip_share` (1 where the
clip decided), `kl_reference` (k3 to the reference)."""


def supervised(tokens: Tokens, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """Negative log-likelihood."""
    return -tokens.logprobs, {}


def reinforce(tokens: Tokens, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """-advantage * log-probability (Williams 1992; RLOO of Ahmadian et al. 2024, eq. 6).

    There is no ratio and so no clip: a second update on the same episodes is not corrected for the first.
    """
    return _with_extras(-tokens.advantages * tokens.logprobs, tokens, config, {})


def clipped(tokens: Tokens, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped surrogate a token (Schulman et al. 2017, eq. 7), each side with its own bound (DAPO, eq. 10)."""
    return _surrogate(torch.exp(tokens.logprobs - tokens.old), tokens, config)


def squared_clipped(tokens: Tokens, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """`clipped` with the k2 penalty, which REINFORCE++ takes for its gradient: that of k3 is biased (Hu 2025, 3.2)."""
    return _surrogate(torch.exp(tokens.logprobs - tokens.old), tokens, config, k2)


def sequence_clipped(tokens: Tokens, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """GSPO: the ratio of a row is the geometric mean of its tokens' ratios (Zheng et al. 2025, eq. 7)."""
    length = tokens.row_sum(tokens.mask).clamp(min=1.0)
    mean = tokens.row_sum((tokens.logprobs - tokens.old) * tokens.mask) / length
    return _surrogate(torch.exp(mean).expand_as(tokens.mask), tokens, config)


def k2(gap: Tensor) -> Tensor:
    """Half the squared gap; its gradient is that of KL(policy || reference), without bias, on the policy's samples."""
    return 0.5 * gap.square()


def k3(gap: Tensor) -> Tensor:
    """exp(gap) - gap - 1, gap = reference - policy: never negative, its value without bias, of low variance."""
    return torch.exp(gap) - gap - 1.0


Penalty = Callable[[Tensor], Tensor]
"""An estimate of KL(policy || reference) a token (Schulman, "Approximating KL divergence", 2020)."""


def _surrogate(
    ratio: Tensor, tokens: Tokens, config: LossConfig, penalty: Penalty = k3
) -> tuple[Tensor, dict[str, Tensor]]:
    plain = ratio * tokens.advantages
    bounded = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * tokens.advantages
    each = -torch.minimum(plain, bounded)
    return _with_extras(each, tokens, config, {"clip_share": (bounded < plain).float().detach()}, penalty)


def _with_extras(
    each: Tensor, tokens: Tokens, config: LossConfig, found: dict[str, Tensor], penalty: Penalty = k3
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add the KL to the reference and the entropy bonus, where they are asked for."""
    if tokens.reference is not None:
        gap = tokens.reference - tokens.logprobs
        found["kl_reference"] = k3(gap.detach())  # whatever the penalty is: one number that can be compared
        if config.kl:
            each = each + config.kl * penalty(gap)
    if config.entropy and tokens.entropy is not None:
        each = each - config.entropy * tokens.entropy
    return each, found


LOSSES: Mapping[str, Loss] = {
    "supervised": supervised,
    "grpo": clipped,
    "dr_grpo": clipped,
    "dapo": clipped,
    "gspo": sequence_clipped,
    "rloo": reinforce,
    "reinforce": reinforce,
    "reinforce_pp": squared_clipped,
}

SEQUENCE_MEAN = ("grpo", "gspo")
"""Losses that are the mean over rows of each row's mean (DeepSeekMath, eq. 3; GSPO, eq. 5)."""
ROW_SUM = ("rloo", "reinforce")
"""Losses that are the mean over rows of each row's sum: the log-probability of the whole row."""
CONSTANT = ("dr_grpo",)
"""Losses that divide each row's sum by a constant (Liu et al. 2025, "Understanding R1-Zero-like training", 3.2)."""


def coefficients(config: LossConfig, lengths: Sequence[int]) -> list[float]:
    """For each row of the global batch the factor of each of its token losses; their weighted sum is the loss.

    `lengths` are the rows' numbers of trained tokens; a row of none has no part in any mean. All that is in neither
    list is a mean over tokens (DAPO, eq. 12).
    """
    rows = sum(length > 0 for length in lengths)
    total = sum(lengths)
    if config.name in CONSTANT:
        longest = config.max_tokens or max(lengths, default=1)
        return [1.0 / (rows * longest) if length else 0.0 for length in lengths]
    if config.name in ROW_SUM:
        return [1.0 / rows if length else 0.0 for length in lengths]
    if config.name in SEQUENCE_MEAN:
        return [1.0 / (rows * length) if length else 0.0 for length in lengths]
    return [1.0 / total if length else 0.0 for length in lengths]
