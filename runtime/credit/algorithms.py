"""The one table of algorithms: how each makes its advantages, which loss it has, and where it was described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from guerdon.runtime.contracts.learner import LossConfig


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An advantage rule (a row of `advantages.RULES`) and a loss with its usual constants."""

    name: str
    about: str
    advantage: str
    loss: LossConfig
    paper: str


ALGORITHMS: Mapping[str, Algorithm] = {
    one.name: one
    for one in (
        Algorithm("grpo", "group-normalised advantages, clipped ratio, mean over rows of the mean over tokens",
                  "normalised", LossConfig("grpo"), "DeepSeekMath, arXiv:2402.03300"),
        Algorithm("dr_grpo", "advantages without the deviation, sums divided by a constant length",
                  "centred", LossConfig("dr_grpo"), "Understanding R1-Zero-like training, arXiv:2503.20783"),
        Algorithm("dapo", "asymmetric clip, mean over all tokens",
                  "normalised", LossConfig("dapo", clip_high=0.28), "DAPO, arXiv:2503.14476"),
        Algorithm("gspo", "one ratio a sequence",
                  "normalised", LossConfig("gspo", clip_low=3e-4, clip_high=4e-4), "GSPO, arXiv:2507.18071"),
        Algorithm("rloo", "leave-one-out baseline, log-probability of the whole sequence",
                  "leave_one_out", LossConfig("rloo"), "Back to basics, arXiv:2402.14740"),
        Algorithm("reinforce_pp", "centred by group, scaled by batch (its form with baseline), clipped ratio, k2",
                  "whitened", LossConfig("reinforce_pp"), "REINFORCE++, arXiv:2501.03262"),
    )
}
