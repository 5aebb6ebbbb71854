"""Whether a model can be spread over ranks as asked: plain numbers, checked before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, Parallel


def threads(asked: int, ranks: int) -> int:
    """CPU threads a rank: its share of the processors, since one more makes all ranks many times slower."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return asked or max(1, usable // ranks)


def check(config: LearnerConfig) -> None:
    """Raises LearnerFault with the first thing about the configuration that cannot be, and what would."""
    for problem in (*_numbers(config), *_layout(config.parallel), *_spread(config.model, config.parallel)):
        raise LearnerFault(f"learner: {problem}")


def _numbers(config: LearnerConfig) -> Iterator[str]:
    shape = config.model
    for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "context"):
        if getattr(shape, name) < 1:
            yield f"model.{name} is {getattr(shape, name)}: give 1 or more"
    for name in ("ranks", "tensor", "pipeline", "context"):
        if getattr(config.parallel, name) < 1:
            yield f"parallel.{name} is {getattr(config.parallel, name)}: give 1 or more"
    if shape.heads % shape.kv_heads:
        yield f"model.heads ({shape.heads}) is no multiple of model.kv_heads ({shape.kv_heads})"
    if shape.head_dim % 2:
        yield f"model.head_dim is {shape.head_dim}: rotary positions need an even number"
    scaling = shape.rope_scaling
    if scaling and not (scaling.factor > 0 and scaling.high_freq_factor > scaling.low_freq_factor > 0):
        yield "model.rope_scaling needs factor > 0 and high_freq_factor > low_freq_factor > 0"
    if config.precision not in ("fp32", "bf16"):
        yield f"precision is {config.precision!r}: give fp32 or bf16"
    if config.micro_tokens < 1:
        yield f"micro_tokens is {config.micro_tokens}: give 1 or more"


def _layout(parallel: Parallel) -> Iterator[str]:
    part = parallel.tensor * parallel.pipeline * parallel.context
    if parallel.ranks % part:
        yield f"parallel.ranks ({parallel.ranks}) is no multiple of tensor * pipeline * context ({part})"
    if parallel.sequence and parallel.tensor == 1:
        yield "parallel.sequence shares work inside tensor parallelism: set parallel.tensor above 1, or leave it off"


def _spread(shape: ModelShape, parallel: Parallel) -> Iterator[str]:
    for name in ("heads", "kv_heads", "ffn"):
        if getattr(shape, name) % parallel.tensor:
            yield f"model.{name} ({getattr(shape, name)}) is no multiple of parallel.tensor ({parallel.tensor})"
    if shape.layers % parallel.pipeline:
        yield f"model.layers ({shape.layers}) is no multiple of parallel.pipeline ({parallel.pipeline})"
