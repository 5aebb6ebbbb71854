"""A `config.json` of Hugging Face as a ModelShape and back; what this version cannot do exactly is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.shape import ModelShape, RopeScaling

_MOST = 1e300
"""Above this is nothing that a configuration means; a float holds it, which is not so of every JSON number."""
FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_MUST: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",), "attention_bias": (False, None), "mlp_bias": (False, None),
    "use_sliding_window": (False, None), "quantization_config": (None,), "pretraining_tp": (1, None),
    "num_experts": (None, 0), "num_local_experts": (None, 0), "partial_rotary_factor": (None, 1),
    "auto_map": (None, {}), "tie_word_embeddings": (False, True),
}
"""What a field must be, where it is there at all."""


def to_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """The shape that a configuration describes, with the defaults of transformers. Raises LearnerFault."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise LearnerFault(f"{where}: model_type is {family!r}; this version knows {', '.join(FAMILIES)}")
    fields = _Fields(config, where)
    if config.get("architectures") not in (None, [], [FAMILIES[family]]):
        raise fields.refused("architectures", f"this version knows {FAMILIES[family]}")
    for key, fine in _MUST.items():
        if key in config and config[key] not in fine:
            raise fields.refused(key)
    if any(kind != "full_attention" for kind in _listed(config.get("layer_types"))):
        raise fields.refused("layer_types", "this version knows full_attention")
    heads, hidden = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    kv_heads = fields.whole("num_key_value_heads", heads if family == "llama" else 32)
    if heads % kv_heads:
        raise fields.refused("num_key_value_heads", f"num_attention_heads is {heads}")
    head_dim = fields.whole("head_dim", 128 if family == "qwen3" else max(1, hidden // heads))
    if head_dim % 2:
        raise fields.refused("head_dim", "rotary positions turn pairs")
    base, scaling = _rope(fields)
    return ModelShape(
        layers=fields.whole("num_hidden_layers"), hidden=hidden, ffn=fields.whole("intermediate_size"), heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocab=fields.whole("vocab_size"),
        context=fields.whole("max_position_embeddings", 2048 if family == "llama" else 32768), rope_base=base,
        rope_scaling=scaling, norm_eps=fields.number("rms_norm_eps", 1e-6),
        tied=bool(config.get("tie_word_embeddings", False)), qkv_bias=family == "qwen2", qk_norm=family == "qwen3",
        init_std=fields.number("initializer_range", 0.02),
    )


class _Fields:
    """Fields of a JSON object as positive numbers; faults name the field."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def refused(self, key: str, why: str = "which this version cannot do") -> LearnerFault:
        return LearnerFault(f"{self.where}: {key} is {self.values.get(key)!r:.100}, {why}")

    def number(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise LearnerFault(f"{self.where}: the field {key} is missing; is it a model's folder?")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
            raise self.refused(key, "not a number above 0")
        return float(value)

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value) or value >= 1 << 31:
            raise self.refused(key, "not a whole number below 2^31")
        return int(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _rope(fields: _Fields) -> tuple[float, RopeScaling | None]:
    """The base and the stretch; newer files keep both in `rope_parameters`, older ones in two fields."""
    given: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        value = fields.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise fields.refused(key, "not an object")
        given |= value or {}
    for key, value in given.items():
        if isinstance(value, dict):  # newer files may give each kind of layer its own
            raise LearnerFault(f"{fields.where}: rope_parameters holds an object, {key}, which this version cannot do")
    rope = _Fields(given, f"{fields.where}: rope_parameters")
    base = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    kind = given.get("rope_type", given.get("type", "default"))
    if given.get("partial_rotary_factor") not in (None, 1):
        raise rope.refused("partial_rotary_factor")
    if kind == "default":
        return base, None
    if kind != "llama3":
        raise LearnerFault(f"{fields.where}: rope_type is {kind!r:.100}; this version knows default and llama3")
    return base, RopeScaling(
        rope.number("factor"), rope.number("low_freq_factor"), rope.number("high_freq_factor"),
        rope.whole("original_max_position_embeddings"),
    )


def from_shape(shape: ModelShape, dtype: str) -> dict[str, Any]:
    """The configuration of a shape, as transformers reads it. Raises LearnerFault for a shape that it has no name for.
    """
    if shape.qkv_bias and shape.qk_norm:
        raise LearnerFault("no family of Hugging Face has both qkv_bias and qk_norm; export a model with one of them")
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
        # Releases of transformers before 5 know these two and not `rope_parameters`.
        "rope_theta": shape.rope_base, "rope_scaling": rope if shape.rope_scaling is not None else None,
        "torch_dtype": dtype, "bos_token_id": None, "eos_token_id": None,
    }
