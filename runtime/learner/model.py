"""Megatron-core's GPTModel from plain numbers, in one place; its output is log-probabilities and entropies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from guerdon.runtime.learner.decode import frequencies
from guerdon.runtime.learner.device import Device
from guerdon.runtime.learner.modules import CausalAttention, RMSNorm, Rotary, SwiGLU
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape
from guerdon.runtime.learner.vocabulary import padded, score


def dtype(precision: str) -> torch.dtype:
    """The type of the parameters."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


FUSIONS = dict.fromkeys(
    (
        "gradient_accumulation_fusion",
        "persist_layer_norm",
        "apply_rope_fusion",
        "masked_softmax_fusion",
        "bias_activation_fusion",
        "bias_dropout_fusion",
    ),
    False,
)
"""Kernels of Apex and Transformer Engine, which a machine may not have."""
RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def transformer_config(config: LearnerConfig, device: Device) -> Any:
    """What Megatron-core is told of model and layout."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    shape, parallel, kind = config.model, config.parallel, dtype(config.precision)
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        ffn_hidden_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        kv_channels=shape.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=shape.norm_eps,
        qk_layernorm=shape.qk_norm,
        add_qkv_bias=shape.qkv_bias,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        # Weights are written by name afterwards, so that they are the same in every layout.
        init_method=_leave,
        output_layer_init_method=_leave,
        use_cpu_initialization=not device.cuda,
        params_dtype=kind,
        pipeline_dtype=kind,
        bf16=config.precision == "bf16",
        tensor_model_parallel_size=parallel.tensor,
        pipeline_model_parallel_size=parallel.pipeline,
        context_parallel_size=parallel.context,
        sequence_parallel=parallel.sequence and parallel.tensor > 1,
        # Gradients are sums over ranks and micro-batches; the loss's coefficients hold the whole normalisation.
        calculate_per_token_loss=True,
        # Micro-batches are as wide as their longest row, so stages tell each other the shape of what they send
        # (which megatron-core allows with this dispatcher only, also where there are no experts).
        variable_seq_lengths=parallel.pipeline > 1,
        moe_token_dispatcher_type="alltoall",
        batch_p2p_comm=device.cuda,
        overlap_p2p_comm=False,
        # The one way to give the MLP an activation of gate and value together: ours, see `layers`.
        use_te_activation_func=not transformer_engine(device),
        **FUSIONS,
        **(RECOMPUTE if config.recompute else {}),
    )


def _leave(weight: Tensor) -> Tensor:
    return weight


def transformer_engine(device: Device) -> bool:
    """Whether layers are Transformer Engine's."""
    from megatron.core.models.gpt import gpt_layer_specs

    return bool(device.cuda and gpt_layer_specs.HAVE_TE)


def layers(config: Any, shape: ModelShape, device: Device) -> Any:
    """The spec of the layers: Transformer Engine's with CUDA where it is installed, else Megatron-core's own."""
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build

    if transformer_engine(device):
        return gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec(qk_layernorm=shape.qk_norm)
    layer = gpt_layer_specs.get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=shape.qk_norm)
    parts = layer.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = RMSNorm
    attention = parts.self_attention.submodules
    rotary = Rotary(frequencies(shape))
    attention.core_attention = ModuleSpec(module=CausalAttention, params={"rotary": rotary})
    parts.mlp.submodules.activation_func = SwiGLU
    if shape.qk_norm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    return TransformerBlockSubmodules(layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=RMSNorm)


def build(config: LearnerConfig, device: Device) -> Any:
    """This rank's stage of the model, its weights not yet set; the module to give to Megatron's DDP.

    Called as `(ids, positions, None, labels=labels)`, [rows, positions] each, the last stage gives
    [2, rows, positions] float32: log-probabilities of `labels` and entropies; other stages give hidden states.
    """
    from megatron.core import parallel_state as ranks
    from megatron.core.models.gpt import GPTModel
    from megatron.core.transformer.module import Float16Module

    shape = config.model

    class Policy(GPTModel):  # type: ignore[misc]
        """GPTModel that scores its labels at a temperature, without a copy of the logits."""

        temperature = 1.0
        entropy_trains = False

        def compute_language_model_loss(self, labels: Tensor, logits: Tensor) -> Tensor:
            group = ranks.get_tensor_model_parallel_group()
            # logits are [positions, rows, vocab / tensor ranks]
            targets, trains = labels.t().contiguous(), self.entropy_trains
            log_probs, entropy = score(
                logits, targets, shape.vocab, self.temperature, group, entropy_trains=trains
            )
            return torch.stack((log_probs.t(), entropy.t()))

    inner = transformer_config(config, device)
    model = Policy(
        inner,
        layers(inner, shape, device),
        vocab_size=padded(shape.vocab, config.parallel.tensor),
        max_sequence_length=shape.context,
        pre_process=ranks.is_pipeline_first_stage(),
        post_process=ranks.is_pipeline_last_stage(),
        parallel_output=True,
        share_embeddings_and_output_weights=shape.tied,
        # Our own attention turns queries and keys itself.
        position_embedding_type="rope" if transformer_engine(device) else "none",
        rotary_base=shape.rope_base,
    ).to(device.torch)
    if transformer_engine(device):
        # Megatron-core fixes three of the four numbers of Llama-3's stretch, so the frequencies are ours.
        model.rotary_pos_emb.inv_freq = frequencies(shape).to(device.torch)
    return Float16Module(inner, model) if config.precision == "bf16" else model


def policy(module: Any) -> Any:
    """The GPTModel inside of DDP's and Float16Module's wrappers."""
    while hasattr(module, "module"):
        module = module.module
    return module
