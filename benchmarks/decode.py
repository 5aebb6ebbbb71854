"""Tokens a second of the sampler, against Hugging Face's `generate` with the same weights in the same run."""

import argparse
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from guerdon.runtime.contracts.sampling import Request, Sampling
from guerdon.runtime.learner.sampler import DecoderSampler
from guerdon.runtime.learner.shape import ModelShape

PROMPT, NEW = 32, 64
SHAPES = {
    "1M": ModelShape(layers=4, hidden=144, ffn=432, heads=4, kv_heads=4, head_dim=36),
    "SmolLM2-135M": ModelShape(
        layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocab=49152, context=2048, rope_base=1e5,
        norm_eps=1e-5,
    ),
}


def peer(shape):
    """The same model as Hugging Face builds it, with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.ffn, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        max_position_embeddings=shape.context, rms_norm_eps=shape.norm_eps, tie_word_embeddings=shape.tied,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base}, eos_token_id=None, pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def tensors(model, shape):
    """Its weights under Megatron-core's names."""
    state = model.state_dict()
    found = {
        "embedding.word_embeddings.weight": state["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": state["model.norm.weight"],
    }
    for index in range(shape.layers):
        ours, theirs = f"decoder.layers.{index}.", f"model.layers.{index}."
        grouped = [
            state[f"{theirs}self_attn.{name}_proj.weight"].view(shape.kv_heads, -1, shape.hidden) for name in "qkv"
        ]
        found[ours + "self_attention.linear_qkv.weight"] = torch.cat(grouped, 1).reshape(-1, shape.hidden)
        found[ours + "self_attention.linear_proj.weight"] = state[theirs + "self_attn.o_proj.weight"]
        found[ours + "input_layernorm.weight"] = state[theirs + "input_layernorm.weight"]
        found[ours + "pre_mlp_layernorm.weight"] = state[theirs + "post_attention_layernorm.weight"]
        gate, up = state[theirs + "mlp.gate_proj.weight"], state[theirs + "mlp.up_proj.weight"]
        found[ours + "mlp.linear_fc1.weight"] = torch.cat((gate, up))
        found[ours + "mlp.linear_fc2.weight"] = state[theirs + "mlp.down_proj.weight"]
    return found


def timed(work):
    """Tokens a second, and the ids."""
    began = time.perf_counter()
    ids = work()
    return sum(map(len, ids)) / (time.perf_counter() - began), ids


def measure(model, sampler, batch, options):
    """Interleaved pairs, so that the machine's drift hits both alike; the first pair warms up."""
    pairs, temperature = options.pairs, options.temperature
    prompts = torch.randint(model.config.vocab_size, (batch, PROMPT), generator=torch.Generator().manual_seed(batch))
    sampling = Sampling(NEW, temperature)
    requests = [Request(f"r{i}", tuple(row), sampling, i) for i, row in enumerate(prompts.tolist())]

    def ours():
        sampler.forget([request.session for request in requests])
        return [list(sampled.ids) for sampled in sampler.generate(requests)]

    def theirs():
        with torch.no_grad():
            mask = torch.ones_like(prompts)
            how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
            return model.generate(prompts, attention_mask=mask, max_new_tokens=NEW, **how)[:, PROMPT:].tolist()

    rates = []
    for _ in range(pairs + 1):
        (a, mine), (b, other) = timed(ours), timed(theirs)
        rates.append((a, b))
    same = sum(x == y for x, y in zip(mine, other, strict=True))
    fast, slow = (statistics.median(side) for side in zip(*rates[1:], strict=True))
    ratio = statistics.median(a / b for a, b in rates[1:])
    note = f"same ids in {same} of {batch} rows" if temperature == 0 else f"temperature {temperature:g}"
    print(f"  batch {batch:<3} {fast:9.0f} tok/s   HF {slow:9.0f} tok/s   ratio {ratio:5.2f}   {note}", flush=True)


def main():
    """Every model at every batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8, 32])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    for name in options.models:
        shape = SHAPES[name]
        model = peer(shape)
        count = sum(p.numel() for p in model.parameters()) / 1e6
        print(f"{name}: {count:.2f}M parameters, prompt {PROMPT}, {NEW} new, {torch.get_num_threads()} threads")
        sampler = DecoderSampler(shape, tensors(model, shape), 0)
        for batch in options.batches:
            measure(model, sampler, batch, options)


if __name__ == "__main__":
    main()
