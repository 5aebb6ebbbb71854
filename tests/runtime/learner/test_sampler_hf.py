"""The sampler against Hugging Face's models of the three families: greedy ids of `generate`, log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from guerdon.runtime.contracts.sampling import Request, Sampling
from guerdon.runtime.learner.sampler import DecoderSampler
from guerdon.runtime.learner.shape import ModelShape, RopeScaling

transformers = pytest.importorskip("transformers")

VOCAB, HIDDEN, FFN, LAYERS = 61, 32, 48, 2
FAMILIES = {
    "llama, tied, stretched": (
        "Llama",
        {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True,
         "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 24}},
        {"heads": 4, "kv_heads": 2, "head_dim": 8, "tied": True,
         "rope_scaling": RopeScaling(8.0, 1.0, 4.0, 24)},
    ),
    "qwen2, biased": (
        "Qwen2",
        {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": False,
         "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
        {"heads": 4, "kv_heads": 4, "head_dim": 8, "tied": False, "qkv_bias": True, "rope_base": 5000.0},
    ),
    "qwen3, normed heads": (
        "Qwen3",
        {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": False,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        {"heads": 6, "kv_heads": 2, "head_dim": 16, "tied": False, "qk_norm": True},
    ),
}


def build(family: str):
    """The peer with random weights (norms and biases too), and our shape of it."""
    name, theirs, ours = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, rms_norm_eps=1e-5,
        max_position_embeddings=128, eos_token_id=None, bos_token_id=None, pad_token_id=0, **theirs,
    )
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.normal_(0.0, 0.2)
    shape = ModelShape(
        layers=LAYERS, hidden=HIDDEN, ffn=FFN, vocab=VOCAB, context=128, norm_eps=1e-5, **ours,
    )
    return model, shape


def mapped(model, shape: ModelShape) -> dict[str, torch.Tensor]:
    """Hugging Face's tensors under Megatron's names: rows of q, k, v by query group; gate above up."""
    state = model.state_dict()
    found = {}
    for key, value in state.items():
        if key == "model.embed_tokens.weight":
            found["embedding.word_embeddings.weight"] = value
        elif key == "model.norm.weight":
            found["decoder.final_layernorm.weight"] = value
        elif key == "lm_head.weight" and not shape.tied:
            found["output_layer.weight"] = value
    group, d = shape.heads // shape.kv_heads, shape.head_dim
    for i in range(LAYERS):
        at, to = f"model.layers.{i}.", f"decoder.layers.{i}."
        for kind in ["weight", "bias"] if shape.qkv_bias else ["weight"]:
            q, k, v = (state[f"{at}self_attn.{n}_proj.{kind}"] for n in "qkv")
            rows = []
            for j in range(shape.kv_heads):
                rows += [q[j * group * d : (j + 1) * group * d], k[j * d : (j + 1) * d], v[j * d : (j + 1) * d]]
            found[f"{to}self_attention.linear_qkv.{kind}"] = torch.cat(rows)
        if shape.qk_norm:
            for n in "qk":
                found[f"{to}self_attention.{n}_layernorm.weight"] = state[f"{at}self_attn.{n}_norm.weight"]
        found[to + "self_attention.linear_proj.weight"] = state[at + "self_attn.o_proj.weight"]
        found[to + "input_layernorm.weight"] = state[at + "input_layernorm.weight"]
        found[to + "pre_mlp_layernorm.weight"] = state[at + "post_attention_layernorm.weight"]
        gate, up = state[at + "mlp.gate_proj.weight"], state[at + "mlp.up_proj.weight"]
        found[to + "mlp.linear_fc1.weight"] = torch.cat((gate, up))
        found[to + "mlp.linear_fc2.weight"] = state[at + "mlp.down_proj.weight"]
    return found


@pytest.mark.parametrize("family", list(FAMILIES))
def test_greedy_ids_and_logprobs_equal_the_peers(family):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    model, shape = build(family)
    rng = np.random.default_rng(3)
    # Enough ids for the packed pass of many (over 128) and, in the second call, for that of few.
    prompts = [tuple(rng.integers(0, VOCAB, size).tolist()) for size in (50, 7, 1, 33, 20, 41)]
    sampler = DecoderSampler(shape, mapped(model, shape), 0)
    requests = [Request(str(i), ids, Sampling(30, 0.0)) for i, ids in enumerate(prompts)]
    first = sampler.generate(requests)
    further = [
        Request(request.session, request.ids + answer.ids + (5, 6), Sampling(20, 0.8), 4, 1)
        for request, answer in zip(requests, first, strict=True)
    ]
    second = sampler.generate(further)
    for request, answer in zip(requests + further, first + second, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([request.ids + answer.ids])).logits[0, len(request.ids) - 1 : -1].double()
        temperature = request.sampling.temperature or 1.0
        expected = torch.log_softmax(logits / temperature, -1)[range(len(answer.ids)), answer.ids]
        assert (expected - torch.tensor(answer.logprobs, dtype=torch.float64)).abs().max() < 1e-5
        if request.sampling.temperature == 0:
            ids = torch.tensor([request.ids])
            peer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False)
            assert tuple(peer[0, ids.shape[1] :].tolist()) == answer.ids
    torch.set_num_threads(before)
