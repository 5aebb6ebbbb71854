"""One forward pass of a Llama / Qwen2 / Qwen3 decoder over Megatron's tensors, with cached keys and values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from guerdon.runtime.learner.shape import ModelShape, RopeScaling

_NARROW = 128


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's tensors."""

    norm: Tensor
    qkv: Tensor
    bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    proj: Tensor
    mlp_norm: Tensor
    fc1: Tensor
    fc2: Tensor


def sizes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a decoder, as Megatron-core names them; vocabulary rows may be more."""
    width = shape.heads * shape.head_dim
    found: dict[str, tuple[int, ...]] = {"embedding.word_embeddings.weight": (shape.vocab, shape.hidden)}
    for index in range(shape.layers):
        at, rows = f"decoder.layers.{index}.", width + 2 * shape.kv_heads * shape.head_dim
        found[at + "input_layernorm.weight"] = (shape.hidden,)
        found[at + "self_attention.linear_qkv.weight"] = (rows, shape.hidden)
        if shape.qkv_bias:
            found[at + "self_attention.linear_qkv.bias"] = (rows,)
        if shape.qk_norm:
            found[at + "self_attention.q_layernorm.weight"] = (shape.head_dim,)
            found[at + "self_attention.k_layernorm.weight"] = (shape.head_dim,)
        found[at + "self_attention.linear_proj.weight"] = (shape.hidden, width)
        found[at + "pre_mlp_layernorm.weight"] = (shape.hidden,)
        found[at + "mlp.linear_fc1.weight"] = (2 * shape.ffn, shape.hidden)
        found[at + "mlp.linear_fc2.weight"] = (shape.hidden, shape.ffn)
    found["decoder.final_layernorm.weight"] = (shape.hidden,)
    if not shape.tied:
        found["output_layer.weight"] = (shape.vocab, shape.hidden)
    return found


def _check(shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
    for name, size in sizes(shape).items():
        if name not in tensors:
            raise ValueError(f"tensor {name} is missing: give the whole model, under Megatron-core's names")
        given = tuple(tensors[name].shape)
        padded = size[0] == shape.vocab and len(size) == 2 and given[0] >= size[0] and "layers" not in name
        if given != size and not (padded and given[1:] == size[1:]):
            raise ValueError(f"tensor {name} is {given}, the model's shape wants {size}: the two must belong together")


def frequencies(shape: ModelShape) -> Tensor:
    """Rotary angles a position, [head_dim / 2], fp32 (Su et al., RoFormer, 2021; Llama 3's scaling where asked)."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.int64).float() / shape.head_dim
    plain = 1.0 / (shape.rope_base**exponents)
    return plain if shape.rope_scaling is None else _stretch(plain, shape.rope_scaling)


def _stretch(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow angles divided by the factor, fast ones kept, those between blended (as Llama 3.1 was trained)."""
    wavelength = 2 * math.pi / plain
    blend = (scaling.original_context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blend = blend.clamp(0, 1)
    return (1 - blend) * plain / scaling.factor + blend * plain


class Attend(Protocol):
    """Stores a layer's new keys and values and attends with its queries: [T, kv_heads, group + 2, head_dim] in,
    [T, heads * head_dim] out."""

    def __call__(self, layer: int, qkv: Tensor) -> Tensor: ...


class Decoder:
    """The dense layers of the model; attention, which knows the cache, is handed in."""

    def __init__(self, shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
        _check(shape, tensors)
        self.shape = shape
        held = {name: tensors[name].detach() for name in sizes(shape)}
        self._embedding = held["embedding.word_embeddings.weight"]
        self._final = held["decoder.final_layernorm.weight"]
        output = self._embedding if shape.tied else held["output_layer.weight"]
        self._output = output[: shape.vocab]
        self._layers = [self._layer(held, f"decoder.layers.{index}.") for index in range(shape.layers)]
        self.dtype, self.device = self._embedding.dtype, self._embedding.device
        self._angles = self._rotations()

    @staticmethod
    def _layer(held: Mapping[str, Tensor], at: str) -> _Layer:
        attention = at + "self_attention."
        return _Layer(
            norm=held[at + "input_layernorm.weight"],
            qkv=held[attention + "linear_qkv.weight"],
            bias=held.get(attention + "linear_qkv.bias"),
            q_norm=held.get(attention + "q_layernorm.weight"),
            k_norm=held.get(attention + "k_layernorm.weight"),
            proj=held[attention + "linear_proj.weight"],
            mlp_norm=held[at + "pre_mlp_layernorm.weight"],
            fc1=held[at + "mlp.linear_fc1.weight"],
            fc2=held[at + "mlp.linear_fc2.weight"],
        )

    def _rotations(self) -> Tensor:
        """Angles a position for a whole query group [1, group + 2, head_dim]: the value's are 0, so that one rotation
        serves queries, key and value; the first half's are negative, so that their sines carry rotate-half's sign."""
        shape = self.shape
        angles = frequencies(shape)
        rows = torch.cat((-angles, angles)).repeat(shape.heads // shape.kv_heads + 2, 1)
        rows[-1] = 0.0
        return rows[None].to(self.device)

    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states [T, hidden] before the last norm, of ids [T] at positions [T]."""
        angles = positions[:, None, None, None] * self._angles
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        x = F.embedding(ids, self._embedding)
        return (self._narrow if len(ids) <= _NARROW else self._wide)(x, cos, sin, attend)

    def _wide(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Many ids: each id's features lie together."""
        for index, layer in enumerate(self._layers):
            qkv = F.linear(self._norm(x, layer.norm), layer.qkv, layer.bias)
            x.addmm_(attend(index, self._rotated(qkv, layer, cos, sin)), layer.proj.t())
            gate, up = F.linear(self._norm(x, layer.mlp_norm), layer.fc1).chunk(2, -1)
            x.addmm_(F.silu(gate).mul_(up), layer.fc2.t())
        return x

    def _narrow(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Few ids: each feature's ids lie together, for weight @ x is up to 1.7 times as fast as x @ weight.T when x
        is narrow (MKL, 2 to 32 ids)."""
        x = x.t().contiguous()
        for index, layer in enumerate(self._layers):
            qkv = torch.mm(layer.qkv, self._norm_columns(x, layer.norm)).t().contiguous()
            if layer.bias is not None:
                qkv += layer.bias
            x.addmm_(layer.proj, attend(index, self._rotated(qkv, layer, cos, sin)).t())
            gate, up = torch.mm(layer.fc1, self._norm_columns(x, layer.mlp_norm)).chunk(2, 0)
            x.addmm_(layer.fc2, F.silu(gate).mul_(up))
        return x.t()

    def _rotated(self, qkv: Tensor, layer: _Layer, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries, keys and values by query group, turned to their positions (rotate-half)."""
        shape = self.shape
        qkv = qkv.view(-1, shape.kv_heads, shape.heads // shape.kv_heads + 2, shape.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            qkv = self._norm_heads(qkv, layer.q_norm, layer.k_norm)
        return torch.addcmul(qkv * cos, qkv.roll(shape.head_dim // 2, -1), sin)

    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 logits [rows, vocab] of hidden states [rows, hidden]; padded ids have none."""
        return torch.mm(self._output, self._norm(hidden, self._final).t()).t().float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm in fp32 (Zhang and Sennrich, 2019)."""
        if x.dtype == torch.float32:
            return F.rms_norm(x, weight.shape, weight, self.shape.norm_eps)
        return F.rms_norm(x.float(), weight.shape, weight.float(), self.shape.norm_eps).to(x.dtype)

    def _norm_columns(self, x: Tensor, weight: Tensor) -> Tensor:
        """The same of [hidden, T]."""
        wide = x.float()
        scale = wide.square().mean(0).add_(self.shape.norm_eps).rsqrt_()
        return (wide * scale).mul_(weight[:, None]).to(x.dtype)

    def _norm_heads(self, qkv: Tensor, q_norm: Tensor, k_norm: Tensor) -> Tensor:
        queries = self._norm(qkv[:, :, :-2], q_norm)
        return torch.cat((queries, self._norm(qkv[:, :, -2:-1], k_norm), qkv[:, :, -1:]), 2)
