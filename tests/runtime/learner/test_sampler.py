"""The sampler against a plain full forward written from the papers: log-probabilities, caches, noise, ends."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.runtime.contracts.sampling import Request, Sampled, SamplerFault, Sampling
from guerdon.runtime.learner.decode import Decoder
from guerdon.runtime.learner.sampler import DecoderSampler
from guerdon.runtime.learner.shape import ModelShape, RopeScaling

VOCAB, PADDED = 43, 48
PLAIN = ModelShape(layers=2, hidden=24, ffn=40, heads=4, kv_heads=2, head_dim=8, vocab=VOCAB, context=96)
QWEN3 = ModelShape(
    layers=2, hidden=24, ffn=40, heads=6, kv_heads=2, head_dim=8, vocab=VOCAB, context=96, qk_norm=True,
    qkv_bias=True, tied=False, rope_scaling=RopeScaling(factor=4.0, original_context=32),
)


@pytest.fixture(autouse=True)
def one_thread():
    """The machine is shared, and so small a model gains nothing by more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(shape: ModelShape, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Random tensors under Megatron's names; padded vocabulary rows are loud, so that using one shows."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int, std: float = 0.2) -> torch.Tensor:
        return (torch.randn(size, generator=generator) * std).to(dtype)

    def vocabulary() -> torch.Tensor:
        table = normal(PADDED, shape.hidden, std=0.4)
        table[VOCAB:] = 50.0 * torch.sign(table[VOCAB:])
        return table

    width, groups = shape.heads * shape.head_dim, shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    found = {"embedding.word_embeddings.weight": vocabulary()}
    for index in range(shape.layers):
        at = f"decoder.layers.{index}."
        found[at + "input_layernorm.weight"] = 1 + normal(shape.hidden)
        found[at + "self_attention.linear_qkv.weight"] = normal(groups, shape.hidden)
        if shape.qkv_bias:
            found[at + "self_attention.linear_qkv.bias"] = normal(groups)
        if shape.qk_norm:
            found[at + "self_attention.q_layernorm.weight"] = 1 + normal(shape.head_dim)
            found[at + "self_attention.k_layernorm.weight"] = 1 + normal(shape.head_dim)
        found[at + "self_attention.linear_proj.weight"] = normal(shape.hidden, width)
        found[at + "pre_mlp_layernorm.weight"] = 1 + normal(shape.hidden)
        found[at + "mlp.linear_fc1.weight"] = normal(2 * shape.ffn, shape.hidden)
        found[at + "mlp.linear_fc2.weight"] = normal(shape.hidden, shape.ffn)
    found["decoder.final_layernorm.weight"] = 1 + normal(shape.hidden)
    if not shape.tied:
        found["output_layer.weight"] = vocabulary()
    return found


def angle(shape: ModelShape, pair: int) -> float:
    """theta_i = base^(-2i/d) (RoFormer); Llama 3.1's stretch as its reference code has it."""
    theta = shape.rope_base ** (-2 * pair / shape.head_dim)
    scaling = shape.rope_scaling
    if scaling is None:
        return theta
    wavelength = 2 * math.pi / theta
    if wavelength < scaling.original_context / scaling.high_freq_factor:
        return theta
    if wavelength > scaling.original_context / scaling.low_freq_factor:
        return theta / scaling.factor
    smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - smooth) * theta / scaling.factor + smooth * theta


def norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def rotate(shape: ModelShape, x: np.ndarray) -> np.ndarray:
    """Each pair (x_i, x_{i + d/2}) is a complex number, turned by position times theta_i."""
    half = shape.head_dim // 2
    turn = np.array(
        [[cmath.exp(1j * position * angle(shape, pair)) for pair in range(half)] for position in range(len(x))]
    )
    turned = (x[:, :half] + 1j * x[:, half:]) * turn
    return np.concatenate((turned.real, turned.imag), -1)


def forward(shape: ModelShape, tensors: dict[str, torch.Tensor], ids: tuple[int, ...]) -> np.ndarray:
    """Logits [len(ids), vocab] in float64, head by head, without any cache."""
    w = {name: tensor.detach().to(torch.float64).numpy() for name, tensor in tensors.items()}
    group, d = shape.heads // shape.kv_heads, shape.head_dim
    x = w["embedding.word_embeddings.weight"][list(ids)]
    future = np.triu(np.ones((len(ids), len(ids)), dtype=bool), 1)
    for index in range(shape.layers):
        at = f"decoder.layers.{index}."
        qkv = norm(x, w[at + "input_layernorm.weight"], shape.norm_eps) @ w[at + "self_attention.linear_qkv.weight"].T
        if shape.qkv_bias:
            qkv = qkv + w[at + "self_attention.linear_qkv.bias"]
        heads = []
        for kv in range(shape.kv_heads):
            part = qkv[:, kv * (group + 2) * d : (kv + 1) * (group + 2) * d]
            key, value = part[:, group * d : (group + 1) * d], part[:, (group + 1) * d :]
            if shape.qk_norm:
                key = norm(key, w[at + "self_attention.k_layernorm.weight"], shape.norm_eps)
            for head in range(group):
                query = part[:, head * d : (head + 1) * d]
                if shape.qk_norm:
                    query = norm(query, w[at + "self_attention.q_layernorm.weight"], shape.norm_eps)
                scores = rotate(shape, query) @ rotate(shape, key).T / math.sqrt(d)
                scores[future] = -np.inf
                share = np.exp(scores - scores.max(-1, keepdims=True))
                heads.append(share / share.sum(-1, keepdims=True) @ value)
        x = x + np.concatenate(heads, -1) @ w[at + "self_attention.linear_proj.weight"].T
        fc1 = norm(x, w[at + "pre_mlp_layernorm.weight"], shape.norm_eps) @ w[at + "mlp.linear_fc1.weight"].T
        gate, up = fc1[:, : shape.ffn], fc1[:, shape.ffn :]
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.linear_fc2.weight"].T
    x = norm(x, w["decoder.final_layernorm.weight"], shape.norm_eps)
    output = w["embedding.word_embeddings.weight" if shape.tied else "output_layer.weight"]
    return x @ output[: shape.vocab].T


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def check(shape: ModelShape, tensors: dict[str, torch.Tensor], request: Request, sampled: Sampled) -> None:
    """Log-probabilities of the full forward; every id is where the CDF passes its uniform (or the likeliest)."""
    sampling = request.sampling
    logits = forward(shape, tensors, request.ids + sampled.ids)[len(request.ids) - 1 : -1]
    expected = log_softmax(logits / (sampling.temperature or 1.0))
    assert np.abs(expected[range(len(sampled.ids)), sampled.ids] - sampled.logprobs).max() < 1e-5
    if sampling.temperature == 0:
        assert list(sampled.ids) == logits.argmax(-1).tolist()
        return
    draws = np.random.Generator(np.random.Philox(key=[request.seed, request.turn])).random(len(sampled.ids))
    for row, token, draw in zip(expected, sampled.ids, draws, strict=True):
        probability = np.exp(row)
        if sampling.top_p < 1:
            order = np.argsort(-probability, kind="stable")
            size = int(np.searchsorted(np.cumsum(probability[order]), sampling.top_p)) + 1
            probability[order[size:]] = 0
        cdf = np.cumsum(probability) / probability.sum()
        assert probability[token] > 0
        assert cdf[token] - probability[token] / probability.sum() - 1e-5 <= draw <= cdf[token] + 1e-5


def prompts(count: int, seed: int = 0, longest: int = 30) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(0, VOCAB, rng.integers(1, longest)).tolist()) for _ in range(count)]


@pytest.mark.parametrize("shape", [PLAIN, QWEN3], ids=["plain", "qwen3"])
def test_a_ragged_batch_of_many_minds_equals_the_full_forward(shape):
    tensors = weights(shape)
    how = [
        Sampling(40), Sampling(40, 0.0), Sampling(7, 0.7), Sampling(40, 1.3, 0.8), Sampling(40, 1.0, 0.4),
        Sampling(1, 1e-3), Sampling(33, 1.0, 1.0, tuple(range(0, VOCAB, 8))), Sampling(12, 0.0, 0.5),
    ]
    requests = [Request(f"s{i}", ids, h, i, i % 3) for i, (ids, h) in enumerate(zip(prompts(8), how, strict=True))]
    sampled = DecoderSampler(shape, tensors, 5).generate(requests)
    for request, answer in zip(requests, sampled, strict=True):
        check(shape, tensors, request, answer)
        assert answer.weights_version == 5
        assert answer.stopped == (answer.ids[-1] in request.sampling.stop)
        assert not set(answer.ids[:-1]) & set(request.sampling.stop)
        assert answer.stopped or len(answer.ids) == request.sampling.max_tokens


def test_chunked_prefill_of_long_prefixes(monkeypatch):
    monkeypatch.setattr("guerdon.runtime.learner.rows._CHUNK", 16)
    tensors = weights(PLAIN)
    requests = [Request(f"s{i}", ids, Sampling(5, 0.0)) for i, ids in enumerate(prompts(6, 3, 80))]
    for request, answer in zip(requests, DecoderSampler(PLAIN, tensors, 0).generate(requests), strict=True):
        check(PLAIN, tensors, request, answer)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ids each forward pass is given, from now on."""
    computed: list[int] = []
    plain = Decoder.__call__

    def spy(self: Decoder, ids: torch.Tensor, *rest: object) -> torch.Tensor:
        computed.append(len(ids))
        return plain(self, ids, *rest)

    monkeypatch.setattr(Decoder, "__call__", spy)
    return computed


def test_turns_of_a_session_equal_turns_from_scratch_and_compute_only_new_ids(monkeypatch):
    tensors = weights(QWEN3)
    sampler = DecoderSampler(QWEN3, tensors, 0)
    computed = counted(monkeypatch)
    conversations = dict(enumerate(prompts(4, 7, 12)))
    for turn in range(3):
        # Sessions come and go in another order each turn, so that slots must be found again.
        order = [(turn + i) % 4 for i in range(4 - turn)]
        requests = [Request(f"s{i}", conversations[i], Sampling(6 + i), i, turn) for i in order]
        computed.clear()
        answers = sampler.generate(requests)
        if turn:
            # The last sampled id was never fed, and three ids of an observation follow it.
            assert computed[0] == 4 * len(order)
        for request, answer, i in zip(requests, answers, order, strict=True):
            fresh = DecoderSampler(QWEN3, tensors, 0).generate([request])[0]
            assert fresh.ids == answer.ids
            assert np.abs(np.subtract(fresh.logprobs, answer.logprobs)).max() < 1e-5
            conversations[i] = request.ids + answer.ids + (1, 2, 3)


SHARED = weights(PLAIN)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 40), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5)),
        min_size=1, max_size=5,
    )
)
def test_any_edit_of_a_prefix_is_seen(edits):
    sampler = DecoderSampler(PLAIN, SHARED, 0)
    held: dict[int, tuple[int, ...]] = {}
    for turn, (session, cut, new) in enumerate(edits):
        ids = held.get(session, ())[:cut] + tuple(new)
        request = Request(str(session), ids, Sampling(3), 1, turn)
        answer = sampler.generate([request])[0]
        check(PLAIN, SHARED, request, answer)
        held[session] = ids + answer.ids


def test_a_group_prefills_its_prompt_once(monkeypatch):
    tensors = weights(PLAIN)
    computed = counted(monkeypatch)
    requests = [Request(f"s{i}", tuple(range(20)), Sampling(8), i) for i in range(5)]
    requests.insert(2, Request("other", (3, 1, 4), Sampling(8), 9))
    answers = DecoderSampler(PLAIN, tensors, 0).generate(requests)
    assert computed[0] == 20 + 3
    assert len({answer.ids for answer in answers}) > 3
    for request, answer in zip(requests, answers, strict=True):
        check(PLAIN, tensors, request, answer)


def test_ids_do_not_depend_on_the_batch_and_bits_not_on_the_run():
    tensors = weights(PLAIN)
    requests = [Request(f"s{i}", ids, Sampling(20, 1.0, 0.9), i, 2) for i, ids in enumerate(prompts(9, 5))]
    together = DecoderSampler(PLAIN, tensors, 0).generate(requests)
    assert together == DecoderSampler(PLAIN, tensors, 0).generate(requests)
    sampler = DecoderSampler(PLAIN, tensors, 0)
    apart = [sampler.generate([request])[0] for request in reversed(requests)]
    assert [answer.ids for answer in reversed(apart)] == [answer.ids for answer in together]
    other = DecoderSampler(PLAIN, tensors, 0).generate([Request("s0", requests[0].ids, Sampling(20), 0, 3)])[0]
    assert other.ids != together[0].ids


def test_more_noise_than_one_block():
    shape = ModelShape(layers=1, hidden=16, ffn=16, heads=2, kv_heads=1, head_dim=8, vocab=VOCAB, context=512)
    tensors = weights(shape)
    requests = [Request("a", (1, 2), Sampling(400), 7), Request("b", (5,), Sampling(128), 8)]
    for request, answer in zip(requests, DecoderSampler(shape, tensors, 0).generate(requests), strict=True):
        assert len(answer.ids) == request.sampling.max_tokens
        check(shape, tensors, request, answer)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.7)])
def test_frequencies_fit_the_distribution(temperature, top_p):
    tensors = weights(PLAIN)
    count, prefix = 3000, (4, 8, 15)
    requests = [Request(f"s{i}", prefix, Sampling(1, temperature, top_p), i) for i in range(count)]
    seen = np.bincount([a.ids[0] for a in DecoderSampler(PLAIN, tensors, 0).generate(requests)], minlength=VOCAB)
    probability = np.exp(log_softmax(forward(PLAIN, tensors, prefix)[-1] / temperature))
    if top_p < 1:
        order = np.argsort(-probability)
        kept = order[: int((np.cumsum(probability[order]) < top_p).sum()) + 1]
        assert set(np.flatnonzero(seen)) <= set(kept)
        probability = np.where(np.isin(np.arange(VOCAB), kept), probability, 0)
        probability /= probability.sum()
    common = probability * count >= 5
    expected = np.append(probability[common], probability[~common].sum()) * count
    observed = np.append(seen[common], seen[~common].sum())
    chi = float(((observed - expected)[expected > 0] ** 2 / expected[expected > 0]).sum())
    freedom = int((expected > 0).sum()) - 1
    assert freedom >= 3
    # Wilson and Hilferty's cube root: 3.1 standard deviations are one in a thousand.
    assert ((chi / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom)) < 3.1


def test_padded_ids_are_neither_sampled_nor_in_the_softmax():
    tensors = weights(QWEN3)
    other = {name: tensor.clone() for name, tensor in tensors.items()}
    for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        other[name] = other[name][:VOCAB]
    requests = [Request(f"s{i}", ids, Sampling(30, 5.0), i) for i, ids in enumerate(prompts(6))]
    answers = DecoderSampler(QWEN3, tensors, 0).generate(requests)
    assert answers == DecoderSampler(QWEN3, other, 0).generate(requests)
    assert max(max(answer.ids) for answer in answers) == VOCAB - 1


def test_the_context_ends_a_turn_and_a_longer_prefix_is_a_fault():
    tensors = weights(PLAIN)
    sampler = DecoderSampler(PLAIN, tensors, 0)
    near, full = tuple(i % VOCAB for i in range(92)), tuple(i % VOCAB for i in range(96))
    prefixes = {"near": (near, 50), "full": (full, 50), "far": ((1,), 90)}
    requests = [Request(name, ids, Sampling(most)) for name, (ids, most) in prefixes.items()]
    answers = sampler.generate(requests)
    assert [len(answer.ids) for answer in answers] == [4, 0, 90]
    assert not any(answer.stopped for answer in answers)
    for request, answer in zip(requests[::2], answers[::2], strict=True):
        check(PLAIN, tensors, request, answer)
    with pytest.raises(SamplerFault, match=r"'over'.*97 ids.*context of 96"):
        sampler.generate([Request("over", (*full, 1), Sampling(1))])


def test_update_drops_caches_and_forget_gives_memory_back():
    tensors, others = weights(PLAIN), weights(PLAIN, seed=1)
    sampler = DecoderSampler(PLAIN, tensors, 0)
    requests = [Request(f"s{i}", ids, Sampling(5)) for i, ids in enumerate(prompts(5))]
    sampler.generate(requests)
    assert sampler.cached_bytes() > 0
    sampler.update(others, 1)
    answers = sampler.generate(requests)
    assert {answer.weights_version for answer in answers} == {1}
    for request, answer in zip(requests, answers, strict=True):
        check(PLAIN, others, request, answer)
    sampler.forget(["s1", "s3", "nobody"])
    size = sampler.cached_bytes()
    sampler.generate([Request("new", (1, 2), Sampling(3)), Request("s1", requests[1].ids, Sampling(3))])
    assert sampler.cached_bytes() == size
    sampler.forget(["s0", "s1", "s2", "s4", "new"])
    assert sampler.cached_bytes() == 0
    check(PLAIN, others, requests[0], sampler.generate(requests[:1])[0])


def test_the_tensors_are_the_learners_own():
    tensors = {name: tensor.requires_grad_() for name, tensor in weights(PLAIN).items()}
    sampler = DecoderSampler(PLAIN, tensors, 0)
    request = Request("a", (1, 2, 3), Sampling(5))
    sampler.generate([request])
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.mul_(1.2)
    sampler.forget(["a"])
    check(PLAIN, tensors, request, sampler.generate([request])[0])


def test_bfloat16_tensors_agree_with_float32_ones_to_their_precision():
    tensors = weights(PLAIN, dtype=torch.bfloat16)
    request = Request("a", (1, 2, 3, 4, 5, 6), Sampling(30, 1.0))
    answer = DecoderSampler(PLAIN, tensors, 0).generate([request])[0]
    expected = log_softmax(forward(PLAIN, tensors, request.ids + answer.ids)[5:-1])[range(30), answer.ids]
    assert np.abs(expected - answer.logprobs).mean() < 0.05
    # Log-probabilities are float32 whatever the tensors are.
    assert any(np.float32(value) != torch.tensor(value).bfloat16().item() for value in answer.logprobs)


def test_weights_that_are_not_numbers_are_a_fault_and_leave_nothing_behind():
    tensors = weights(PLAIN)
    sampler = DecoderSampler(PLAIN, tensors, 0)
    request = Request("a", (1, 2, 3), Sampling(5))
    saved = tensors["decoder.final_layernorm.weight"].clone()
    tensors["decoder.final_layernorm.weight"].fill_(math.nan)
    with pytest.raises(SamplerFault, match="not finite"):
        sampler.generate([request])
    tensors["decoder.final_layernorm.weight"].copy_(saved)
    check(PLAIN, tensors, request, sampler.generate([request])[0])


@pytest.mark.parametrize(
    ("ids", "sampling", "error", "words"),
    [((), Sampling(5), ValueError, "'a' has no ids"), ((1,), Sampling(0), ValueError, "max_tokens"),
     ((1,), Sampling(1, -0.5), ValueError, "temperature -0.5"), ((1,), Sampling(1, math.nan), ValueError, "nan"),
     ((1,), Sampling(1, 1.0, 0.0), ValueError, "top_p 0.0"), ((-1, 2), Sampling(1), SamplerFault, "id -1"),
     ((1, VOCAB), Sampling(1), SamplerFault, f"id {VOCAB} is not one of the model's {VOCAB}"),
     (None, Sampling(1), ValueError, "'b' is in the batch twice")],
)
def test_requests_that_cannot_be_answered(ids, sampling, error, words):
    sampler = DecoderSampler(PLAIN, SHARED, 0)
    other = Request("b", (1,), sampling) if ids is None else Request("a", ids, sampling)
    with pytest.raises(error, match=words):
        sampler.generate([Request("b", (1,), Sampling(1)), other])


def test_tensors_that_do_not_fit_the_shape():
    tensors = weights(PLAIN)
    without = {name: tensor for name, tensor in tensors.items() if "fc2" not in name}
    short = {**tensors, "embedding.word_embeddings.weight": torch.zeros(40, 24)}
    for given_, words in ((without, r"0\.mlp\.linear_fc2\.weight is missing"), (short, r"\(40, 24\).*\(43, 24\)")):
        with pytest.raises(ValueError, match=words):
            DecoderSampler(PLAIN, given_, 0)
    assert DecoderSampler(PLAIN, tensors, 0).generate([]) == []
