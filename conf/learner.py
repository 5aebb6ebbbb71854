"""The model and how it is spread over ranks: `learner=small learner.ranks=2 learner.tensor=2` …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class LearnerConf:
    """A dense decoder; with `weights` its shape comes from there and the numbers here are not looked at."""

    weights: str = ""
    """A folder in Hugging Face's layout, or a GGUF file; empty for random weights."""
    renderer: str = "compact"
    """How messages become ids: `compact` or `hermes` (bytes), or `chat` (a tokenizer with its chat template)."""
    layers: int = 4
    hidden: int = 128
    ffn: int = 384
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 32
    context: int = 256
    """Longest conversation, in ids."""
    rope_base: float = 1000.0
    ranks: int = 1
    tensor: int = 1
    pipeline: int = 1
    context_parallel: int = 1
    sequence: bool = False
    """Sequence parallelism inside tensor parallelism."""
    distributed_optimizer: bool = False
    precision: str = "fp32"
    """`fp32` or `bf16`."""
    micro_tokens: int = 16384
    """Ids that one micro-batch holds at most."""
    recompute: bool = False
    threads: int = 0
    """CPU threads a rank; 0 shares the processors among the ranks."""
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    clip_grad: float = 1.0


OPTIONS: Mapping[str, object] = {
    "small": LearnerConf(),
    "tiny": LearnerConf(layers=2, hidden=64, ffn=192, head_dim=16),
    "hf": LearnerConf(weights="???", renderer="chat", context=2048),
}
