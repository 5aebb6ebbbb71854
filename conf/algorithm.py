"""What is learnt from a step's episodes: `algorithm=grpo algorithm.lr=1e-4` …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class AlgorithmConf:
    """One algorithm; see docs/algorithms.md for what each name means."""

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
    """Weight of the KL to the policy that reinforcement began with."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    zero_variance: str = "skip"
    """`skip` or `keep` groups whose rewards are all equal."""
    temperature: float = 1.0
    top_p: float = 1.0
    max_turn_tokens: int = 64
    """Ids that a turn may have at most."""
    permute: bool = False
    """The control: advantages are dealt out at random within each group."""


OPTIONS: Mapping[str, object] = {
    "grpo": AlgorithmConf(),
    "dr_grpo": AlgorithmConf("dr_grpo"),
    "dapo": AlgorithmConf("dapo", clip_high=0.28),
    "gspo": AlgorithmConf("gspo", clip_low=3e-4, clip_high=4e-4),
    "rloo": AlgorithmConf("rloo"),
    "reinforce_pp": AlgorithmConf("reinforce_pp"),
}
