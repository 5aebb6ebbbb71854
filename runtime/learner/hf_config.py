"""A `config.json` of Hugging Face as a ModelShape and back; what this version cannot do exactly is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.shape import ModelShape, RopeScaling

FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_MUST = {
    "hidden_act": ("silu",), "attention_bias": (False, None), "mlp_bias": (False, None),
    "use_sliding_window": (False, None), "quantization_config": (None,), "pretraining_tp": (1, None),
    "num_experts": (None, 0), "num_local_experts": (None, 0),
}
"""What a field must be, where it is there at all."""


def to_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """The shape that a configuration describes. Raises LearnerFault naming the field."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise LearnerFault(f"{where}: model_type is {family!r}; this version knows {', '.join(FAMILIES)}")
    for key, fine in _MUST.items():
        if key in config and config[key] not in fine:
            raise LearnerFault(f"{where}: {key} is {config[key]!r}, which this version cannot do")
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        base, scaling = _rope(config, where)
        return ModelShape(
            layers=int(config["num_hidden_layers"]), hidden=hidden, ffn=int(config["intermediate_size"]), heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads), vocab=int(config["vocab_size"]),
            context=int(config.get("max_position_embeddings", 2048)), rope_base=base, rope_scaling=scaling,
            norm_eps=float(config.get("rms_norm_eps", 1e-6)), tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2", qk_norm=family == "qwen3",
            init_std=float(config.get("initializer_range", 0.02)),
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise LearnerFault(f"{where}: the field {wrong} is missing or no number") from wrong


def _rope(config: Mapping[str, Any], where: str) -> tuple[float, RopeScaling | None]:
    """The base and the stretch; newer files keep both in `rope_parameters`, older ones in two fields."""
    given = dict(config.get("rope_scaling") or {}) | dict(config.get("rope_parameters") or {})
    base = float(given.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return base, None
    if kind != "llama3":
        raise LearnerFault(f"{where}: rope_type is {kind!r}; this version knows default and llama3")
    return base, RopeScaling(
        float(given["factor"]), float(given["low_freq_factor"]), float(given["high_freq_factor"]),
        int(given["original_max_position_embeddings"]),
    )


def from_shape(shape: ModelShape, dtype: str) -> dict[str, Any]:
    """The configuration of a shape, as transformers reads it."""
    family = "qwen2" if shape.qkv_bias else "qwen3" if shape.qk_norm else "llama"
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_base}
    if shape.rope_scaling is not None:
        stretch = shape.rope_scaling
        rope |= {
            "rope_type": "llama3", "factor": stretch.factor, "low_freq_factor": stretch.low_freq_factor,
            "high_freq_factor": stretch.high_freq_factor,
            "original_max_position_embeddings": stretch.original_context,
        }
    return {
        "architectures": [FAMILIES[family]], "model_type": family, "hidden_act": "silu",
        "num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "vocab_size": shape.vocab, "max_position_embeddings": shape.context, "rms_norm_eps": shape.norm_eps,
        "tie_word_embeddings": shape.tied, "initializer_range": shape.init_std, "rope_parameters": rope,
        "rope_theta": shape.rope_base, "torch_dtype": dtype, "bos_token_id": None, "eos_token_id": None,
    }
