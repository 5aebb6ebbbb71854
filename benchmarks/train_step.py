"""Tokens a second of the learner's train step, against Hugging Face transformers with the same loss in the same run.

8 rows of 128 ids; forward, backward, clipping and Adam. Both get all processors, in turn, so that drift hits both.
"""

import os
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist

from guerdon.runtime.contracts.learner import LossConfig, Row
from guerdon.runtime.learner import device, fit
from guerdon.runtime.learner.engine import Engine
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape

ROWS, IDS = 8, 129
SIZES = {
    "1M": ModelShape(layers=4, hidden=128, ffn=384, heads=4, kv_heads=2, head_dim=32, vocab=1024, tied=False),
    "10M": ModelShape(layers=8, hidden=320, ffn=896, heads=8, kv_heads=4, head_dim=40, vocab=2048, tied=False),
}
LR = 1e-4


def peer(shape):
    """The same model in transformers, with torch's fastest Adam."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, tie_word_embeddings=shape.tied, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    return model, torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


def peer_step(model, adam, ids, old, gain):
    """The clipped surrogate, token mean, entropy for the record: what the learner computes."""
    logits = model(ids[:, :-1]).logits.float()
    log_p = logits.log_softmax(-1)
    chosen = log_p.gather(-1, ids[:, 1:, None]).squeeze(-1)
    with torch.no_grad():
        (log_p.exp() * log_p).sum(-1).mean().item()
    ratio = (chosen - old).exp()
    loss = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    adam.zero_grad()
    return loss.item()


def timed(step, seconds):
    began = time.perf_counter()
    step()
    seconds.append(time.perf_counter() - began)


def main(runs):
    """Print a line for each size."""
    warnings.filterwarnings("ignore")
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    here = device.prepare(0, fit.threads(0, 1))
    dist.init_process_group(here.backend, store=dist.HashStore(), rank=0, world_size=1)
    for name, shape in SIZES.items():
        from megatron.core import parallel_state

        engine = Engine(LearnerConfig(model=shape), here)
        model, adam = peer(shape)
        model.to(here.torch)
        ids = torch.randint(shape.vocab, (ROWS, IDS), generator=torch.Generator().manual_seed(0))
        mask = (0, *(1,) * (IDS - 1))
        rows = [
            Row(tuple(line), mask, (0.0, *(-7.0,) * (IDS - 1)), (0.0, *((-1.0) ** index,) * (IDS - 1)))
            for index, line in enumerate(ids.tolist())
        ]
        gain = torch.tensor([[(-1.0) ** index] for index in range(ROWS)], device=here.torch)
        ids = ids.to(here.torch)
        mine, theirs = [], []
        for turn in range(runs + 2):
            timed(lambda e=engine, r=rows: e.train_step(r, LossConfig(), LR), mine if turn > 1 else [])
            timed(lambda m=model, a=adam, i=ids, g=gain: peer_step(m, a, i, -7.0, g), theirs if turn > 1 else [])
        tokens = ROWS * (IDS - 1)
        fast = [tokens / statistics.median(seconds) for seconds in (mine, theirs)]
        ratio = statistics.median(t / m for m, t in zip(mine, theirs, strict=True))
        count = sum(p.numel() for p in model.parameters())
        print(f"{name:>4} ({count} parameters) {fast[0]:8.0f} tokens/s  transformers {fast[1]:8.0f}  ratio {ratio:.2f}")
        parallel_state.destroy_model_parallel()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
