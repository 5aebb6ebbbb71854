"""What a model is and how it is spread over ranks: plain numbers, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama-3's stretched rotary embedding (the four numbers of Hugging Face's `rope_type: llama3`)."""

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A dense decoder of the Llama / Qwen2 / Qwen3 family: RMSNorm, rotary positions, SwiGLU, grouped queries.

    The default has 821k parameters and speaks bytes.
    """

    layers: int = 4
    hidden: int = 128
    ffn: int = 384
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 32
    vocab: int = 261
    """Ids that the tokenizer has; the embedding may be padded for tensor parallelism, padded ids are never sampled."""
    context: int = 1024
    """Longest sequence, in ids."""
    rope_base: float = 10000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-6
    tied: bool = True
    """Whether the output layer is the embedding."""
    qkv_bias: bool = False
    """Qwen2."""
    qk_norm: bool = False
    """Qwen3."""
    init_std: float = 0.02


@dataclass(frozen=True, slots=True)
class Parallel:
    """How ranks share the work; data parallelism is what is left: ranks / (tensor * pipeline * context)."""

    ranks: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    sequence: bool = False
    """Sequence parallelism inside tensor parallelism."""
    distributed_optimizer: bool = False

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.ranks // (self.tensor * self.pipeline * self.context)


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW with gradient clipping; the learning rate comes with each step."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_grad: float = 1.0


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """All that a rank needs to build its part."""

    model: ModelShape = field(default_factory=ModelShape)
    parallel: Parallel = field(default_factory=Parallel)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    seed: int = 0
    precision: str = "fp32"
    """`fp32` or `bf16`."""
    micro_tokens: int = 16384
    """Ids, padding counted, that one micro-batch holds at most."""
    recompute: bool = False
    threads: int = 0
    """CPU threads a rank; 0 shares the processors among the ranks."""
    weights: str = ""
    """A folder or GGUF file with pretrained weights; empty for random ones."""
