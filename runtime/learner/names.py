"""Parameters by Megatron's global names: gathered from all ranks, written to all ranks, drawn from a seed, digested.

`embedding.word_embeddings.weight`, `decoder.layers.{i}.input_layernorm.weight`,
`….self_attention.linear_qkv.weight` and `.bias` (interleaved by query group), `….self_attention.linear_proj.weight`,
`….self_attention.{q,k}_layernorm.weight`, `….pre_mlp_layernorm.weight`, `….mlp.linear_fc1.weight` ([gate; up]),
`….mlp.linear_fc2.weight`, `decoder.final_layernorm.weight`, and `output_layer.weight` where it is not tied.
Layers are numbered over all pipeline stages; the vocabulary has no padding.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.decode import sizes
from guerdon.runtime.learner.model import policy
from guerdon.runtime.learner.shape import ModelShape

EMBEDDING, OUTPUT = "embedding.word_embeddings.weight", "output_layer.weight"
FUSED = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
}
"""Transformer Engine keeps a norm in the layer that follows it."""


class Drawn(Mapping[str, Tensor]):
    """Random weights of a model as full tensors, each made when it is looked at.

    Each is a function of (seed, name, shape) alone, so that they do not depend on the layout. Norms are 1, biases 0,
    projections back into the residual stream have a deviation of init_std / sqrt(2 layers) (GPT-2).
    """

    def __init__(self, shape: ModelShape, seed: int) -> None:
        self._shape, self._seed, self._sizes = shape, seed, sizes(shape)

    def __getitem__(self, name: str) -> Tensor:
        size = self._sizes[name]
        if name.endswith("layernorm.weight"):
            return torch.ones(size)
        if name.endswith(".bias"):
            return torch.zeros(size)
        inward = name.endswith(("linear_proj.weight", "linear_fc2.weight"))
        deviation = self._shape.init_std / (math.sqrt(2 * self._shape.layers) if inward else 1.0)
        key = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "big") >> 1)
        return torch.empty(size).normal_(0.0, deviation, generator=generator)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)


def parameters(module: Any, shape: ModelShape) -> dict[str, Tensor]:
    """This rank's parameters by global name; the copy that a tied last stage holds has the output layer's."""
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    model = policy(module)
    offset = get_transformer_layer_offset(model.config)
    return {global_name(name, offset): parameter for name, parameter in model.named_parameters()}


def global_name(name: str, offset: int) -> str:
    """A stage's own name of a parameter with its layer counted over all stages, norms unfused."""
    if not name.startswith("decoder.layers."):
        return name
    layer, _, rest = name.removeprefix("decoder.layers.").partition(".")
    return f"decoder.layers.{int(layer) + offset}.{FUSED.get(rest, rest)}"


@torch.no_grad()
def load_full(module: Any, shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
    """Write full tensors into this rank's shards. Raises LearnerFault where names or shapes are not the model's."""
    check(shape, tensors)
    for name, parameter in parameters(module, shape).items():
        source = EMBEDDING if name == OUTPUT and shape.tied else name
        parameter.copy_(_shard(tensors[source], parameter))


def check(shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
    """Raises LearnerFault where names or shapes are not those of the model."""
    wanted = sizes(shape)
    for name in (*wanted, *tensors):
        if name not in tensors or name not in wanted:
            raise LearnerFault(f"weights: {name} is {'missing' if name in wanted else 'not of this model'}")
    for name, size in wanted.items() if not isinstance(tensors, Drawn) else ():
        if tuple(tensors[name].shape) != size:
            raise LearnerFault(f"weights: {name} is {tuple(tensors[name].shape)}, the model's is {size}")


def _tensor_group() -> Any:
    from megatron.core import parallel_state

    return parallel_state.get_tensor_model_parallel_group()


def _shard(full: Tensor, parameter: Tensor) -> Tensor:
    group = _tensor_group()
    if group.size() == 1 or not getattr(parameter, "tensor_model_parallel", False):
        return full
    dim, stride, ranks = parameter.partition_dim, parameter.partition_stride, group.size()  # type: ignore[attr-defined]
    missing = parameter.shape[dim] * ranks - full.shape[dim]  # the vocabulary's padding
    if missing:
        full = torch.cat((full, full.new_zeros(missing, *full.shape[1:])))
    # A stride of 2 is [gate; up]: each rank has its part of both.
    pieces = full.chunk(ranks * stride, dim)
    return torch.cat(pieces[group.rank() :: ranks], dim)


def _gather(parameter: Tensor) -> Tensor:
    group = _tensor_group()
    held = parameter.detach()
    if group.size() == 1 or not getattr(parameter, "tensor_model_parallel", False):
        return held
    parts = [torch.empty_like(held) for _ in range(group.size())]
    dist.all_gather(parts, held.contiguous(), group=group)
    dim, stride = parameter.partition_dim, parameter.partition_stride  # type: ignore[attr-defined]
    pieces = [part.chunk(stride, dim) for part in parts]
    return torch.cat([piece[s] for s in range(stride) for piece in pieces], dim)


@torch.no_grad()
def full_tensors(module: Any, shape: ModelShape) -> dict[str, Tensor]:
    """Every parameter whole, on every rank, in the order of `sizes`; a collective call.

    Without tensor and pipeline parallelism these are the model's own parameters (the same memory).
    """
    own = {n: _gather(p) for n, p in parameters(module, shape).items() if not (n == OUTPUT and shape.tied)}
    found = _over_stages(own)
    return {name: found[name][: shape.vocab] if name in (EMBEDDING, OUTPUT) else found[name] for name in sizes(shape)}


def _over_stages(own: dict[str, Tensor]) -> dict[str, Tensor]:
    from megatron.core import parallel_state

    group = parallel_state.get_pipeline_model_parallel_group()
    if group.size() == 1:
        return own
    lists: list[Any] = [None] * group.size()
    dist.all_gather_object(lists, [(name, tuple(held.shape)) for name, held in own.items()], group=group)
    like = next(iter(own.values()))
    found = {}
    for stage, names in enumerate(lists):
        source = dist.get_global_rank(group, stage)
        for name, size in names:
            whole = own[name].contiguous() if stage == group.rank() else like.new_empty(size)
            dist.broadcast(whole, src=source, group=group)
            found[name] = whole
    return found


def digest(tensors: Mapping[str, Tensor]) -> str:
    """sha256 of names, types, shapes and bytes, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous().cpu()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
