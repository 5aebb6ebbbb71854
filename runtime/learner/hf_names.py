"""Hugging Face's names of a Llama / Qwen2 / Qwen3 decoder's tensors, to Megatron-core's and back; bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from guerdon.runtime.learner.shape import ModelShape

EMBEDDING, OUTPUT, NORM = "embedding.word_embeddings.weight", "output_layer.weight", "decoder.final_layernorm.weight"
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
"""Hugging Face's names of the embedding and the output layer."""


def to_megatron(shape: ModelShape, take: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """The tensors under Megatron-core's names; `take` gives one by Hugging Face's name."""
    found = {EMBEDDING: take(EMBED), NORM: take("model.norm.weight")}
    if not shape.tied:
        found[OUTPUT] = take(HEAD)
    for index in range(shape.layers):
        theirs, ours = f"model.layers.{index}.", f"decoder.layers.{index}."
        for kind in ("weight", "bias") if shape.qkv_bias else ("weight",):
            parts = [take(f"{theirs}self_attn.{one}_proj.{kind}") for one in "qkv"]
            found[f"{ours}self_attention.linear_qkv.{kind}"] = _interleaved(shape, *parts)
        if shape.qk_norm:
            for one in "qk":
                found[f"{ours}self_attention.{one}_layernorm.weight"] = take(f"{theirs}self_attn.{one}_norm.weight")
        found[f"{ours}mlp.linear_fc1.weight"] = torch.cat(
            [take(f"{theirs}mlp.gate_proj.weight"), take(f"{theirs}mlp.up_proj.weight")]
        )
        for own, other in _PLAIN.items():
            found[ours + own] = take(theirs + other)
    return found


def to_hf(shape: ModelShape, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors under Hugging Face's names, without copies where none is needed."""
    yield EMBED, tensors[EMBEDDING]
    yield "model.norm.weight", tensors[NORM]
    if not shape.tied:
        yield HEAD, tensors[OUTPUT]
    for index in range(shape.layers):
        theirs, ours = f"model.layers.{index}.", f"decoder.layers.{index}."
        for kind in ("weight", "bias") if shape.qkv_bias else ("weight",):
            parts = _parted(shape, tensors[f"{ours}self_attention.linear_qkv.{kind}"])
            for one, part in zip("qkv", parts, strict=True):
                yield f"{theirs}self_attn.{one}_proj.{kind}", part
        if shape.qk_norm:
            for one in "qk":
                yield f"{theirs}self_attn.{one}_norm.weight", tensors[f"{ours}self_attention.{one}_layernorm.weight"]
        gate, up = tensors[f"{ours}mlp.linear_fc1.weight"].chunk(2)
        yield f"{theirs}mlp.gate_proj.weight", gate
        yield f"{theirs}mlp.up_proj.weight", up
        for own, other in _PLAIN.items():
            yield theirs + other, tensors[ours + own]


def hf_names(shape: ModelShape) -> Iterator[str]:
    """Hugging Face's names of all tensors of a shape."""
    yield from (EMBED, "model.norm.weight")
    if not shape.tied:
        yield HEAD
    parts = [*_PLAIN.values(), "mlp.gate_proj.weight", "mlp.up_proj.weight"]
    parts += [f"self_attn.{one}_proj.weight" for one in "qkv"]
    parts += [f"self_attn.{one}_proj.bias" for one in "qkv" if shape.qkv_bias]
    parts += [f"self_attn.{one}_norm.weight" for one in "qk" if shape.qk_norm]
    for index in range(shape.layers):
        yield from (f"model.layers.{index}.{part}" for part in parts)


_PLAIN = {
    "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}


def _interleaved(shape: ModelShape, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Rows by query group: its queries, its key, its value."""
    rest = query.shape[1:]
    parts = [one.reshape(shape.kv_heads, -1, *rest) for one in (query, key, value)]
    return torch.cat(parts, 1).reshape(-1, *rest)


def _parted(shape: ModelShape, joined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of what is interleaved by query group."""
    rest, width = joined.shape[1:], shape.head_dim
    groups = joined.reshape(shape.kv_heads, -1, *rest)
    query, key, value = torch.split(groups, [groups.shape[1] - 2 * width, width, width], 1)
    return query.reshape(-1, *rest), key.reshape(-1, *rest), value.reshape(-1, *rest)
