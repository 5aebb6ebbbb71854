"""A sampler over the learner's own tensors: batched decoding of ragged prefixes, a cache for each session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from guerdon.runtime.contracts.sampling import Request, Sampled, SamplerFault
from guerdon.runtime.learner.cache import Cache, CachePool
from guerdon.runtime.learner.decode import Decoder, Span, SpanAttention, StepAttention
from guerdon.runtime.learner.noise import Choice
from guerdon.runtime.learner.shape import ModelShape

_CHUNK = 2048


class DecoderSampler:
    """Samples turns from full (unsharded) tensors under Megatron-core's names; holds views of them, not copies.

    Raises ValueError where the tensors do not fit the shape.
    """

    def __init__(self, shape: ModelShape, tensors: Mapping[str, Tensor], version: int) -> None:
        self._shape = shape
        self.update(tensors, version)

    def update(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Sample from these tensors from now on; every cache is dropped, having been computed from others."""
        self._decoder = Decoder(self._shape, tensors)
        self._pool = CachePool(self._shape, self._decoder.dtype, self._decoder.device)
        self._version = version

    def forget(self, sessions: Iterable[str]) -> None:
        """Drop the caches of sessions; an unknown one is no error."""
        self._pool.forget(sessions)

    def cached_bytes(self) -> int:
        """Memory that the caches take."""
        return self._pool.bytes()

    def generate(self, requests: Sequence[Request]) -> list[Sampled]:
        """One turn for each request, in their order.

        Raises ValueError for a request that makes no sense (a session twice, a temperature below 0), SamplerFault
        for one that this model cannot answer, and for weights whose logits are not numbers.
        """
        for request in requests:
            self._check(request)
        if len({request.session for request in requests}) < len(requests):
            twice = next(r.session for i, r in enumerate(requests) if r.session in {q.session for q in requests[:i]})
            raise ValueError(f"session {twice!r} is in the batch twice: a batch takes one turn of a session")
        full = [request for request in requests if len(request.ids) == self._shape.context]
        turns = [request for request in requests if len(request.ids) < self._shape.context]
        empty = Sampled((), (), self._version, stopped=False)
        answers = {request.session: empty for request in full}
        if turns:
            with torch.inference_mode():
                answers.update(self._batch(turns))
        return [answers[request.session] for request in requests]

    def _check(self, request: Request) -> None:
        sampling, shape, who = request.sampling, self._shape, f"session {request.session!r}"
        if not request.ids:
            raise ValueError(f"{who} has no ids: a turn needs a prefix of one id at least")
        if sampling.max_tokens < 1:
            raise ValueError(f"{who} asks for {sampling.max_tokens} tokens: max_tokens must be 1 or more")
        if not (sampling.temperature >= 0 and math.isfinite(sampling.temperature)):
            raise ValueError(f"{who} has temperature {sampling.temperature}: it must be 0 or more")
        if not 0 < sampling.top_p <= 1:
            raise ValueError(f"{who} has top_p {sampling.top_p}: it must be above 0 and at most 1")
        if len(request.ids) > shape.context:
            raise SamplerFault(
                f"{who}: the prefix of {len(request.ids)} ids is longer than the model's context of {shape.context}:"
                " shorten the episode or take a model with a longer context"
            )
        if not 0 <= min(request.ids) <= max(request.ids) < shape.vocab:
            stray = min(request.ids) if min(request.ids) < 0 else max(request.ids)
            raise SamplerFault(
                f"{who}: id {stray} is not one of the model's {shape.vocab}: the tokenizer must be this model's"
            )

    def _batch(self, requests: Sequence[Request]) -> dict[str, Sampled]:
        """Prefill, then decode until every row has ended; a failure leaves no half-written cache behind."""
        rows = _Rows(requests, self._pool, self._shape)
        try:
            hidden = self._prefill(rows)
            self._decode(rows, hidden)
        except BaseException:
            self._pool.forget([request.session for request in requests])
            raise
        bad = next((turn.request.session for turn in rows.done if not all(map(math.isfinite, turn.logprobs))), None)
        if bad is not None:
            self._pool.clear()
            raise SamplerFault(f"session {bad!r}: the model's logits are not finite: go back to an earlier checkpoint")
        return {
            turn.request.session: Sampled(tuple(turn.ids), tuple(turn.logprobs), self._version, turn.stopped)
            for turn in rows.done
        }

    def _prefill(self, rows: _Rows) -> Tensor:
        """Fill the caches of all rows up to their prefix; the hidden state [rows, hidden] of each prefix's last id."""
        device, decoder = self._decoder.device, self._decoder
        hidden = torch.empty(len(rows.live), self._shape.hidden, dtype=decoder.dtype, device=device)
        for spans in _chunks(rows.spans):
            attend = SpanAttention(self._shape, self._pool.planes, spans)
            ids = [token for span in spans for token in rows.live[span.row].request.ids[span.start : span.end]]
            out = decoder(torch.tensor(ids, device=device), attend.positions, attend)
            at = -1
            for span in spans:
                at += span.end - span.start
                hidden[span.row] = out[at]
        for turn in rows.live[: len(rows.spans)]:
            turn.cache.ids = list(turn.request.ids)
        for row, leader in rows.followers:
            self._pool.copy(rows.live[leader].cache, rows.live[row].cache)
            hidden[row] = hidden[leader]
        return hidden

    def _decode(self, rows: _Rows, hidden: Tensor) -> None:
        """The token loop: one id for every live row, until none is left."""
        choice, decoder = rows.choice(self._decoder.device), self._decoder
        attend: StepAttention | None = None
        while True:
            ids, logprobs = choice(decoder.logits(hidden))
            kept = rows.take(ids[:, 0].tolist(), logprobs[:, 0].tolist())
            if kept is not None:
                if not kept:
                    return
                choice.keep(kept)
                ids, attend = ids[torch.tensor(kept, device=ids.device)], None
            if attend is None or not attend.open():
                attend = self._view(rows)
                attend.open()
            hidden = decoder(ids[:, 0], attend.positions, attend)
            attend.close()
            rows.stored()

    def _view(self, rows: _Rows) -> StepAttention:
        lengths = [len(turn.cache.ids) for turn in rows.live]
        if max(lengths) >= self._pool.capacity:
            self._pool.grow()
        return StepAttention(self._shape, self._pool.planes, lengths)


class _Turn:
    """A turn on its way: what it asked, its cache, and what it has so far."""

    __slots__ = ("cache", "ids", "left", "logprobs", "request", "stop", "stopped")

    def __init__(self, request: Request, cache: Cache, room: int) -> None:
        self.request, self.cache = request, cache
        self.left = min(request.sampling.max_tokens, room)
        self.stop = frozenset(request.sampling.stop)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.stopped = False


class _Rows:
    """The live rows of a batch: row r lies in slot r. Rows that prefill come first, the most new ids first."""

    def __init__(self, requests: Sequence[Request], pool: CachePool, shape: ModelShape) -> None:
        self._pool = pool
        self.done: list[_Turn] = []
        leaders, following = _leaders(requests)
        known = pool.known
        kept = {r.session: min(known(r.session, r.ids), len(r.ids) - 1) for r in leaders}
        leaders.sort(key=lambda request: kept[request.session] - len(request.ids))
        order = leaders + [follower for follower, _ in following]
        caches = pool.arrange([request.session for request in order])
        for request, cache in zip(order, caches, strict=True):
            cache.ids = cache.ids[: kept.get(request.session, 0)]
        pool.reserve(max(min(len(r.ids) + min(r.sampling.max_tokens, 64), shape.context) for r in order))
        self.live = [
            _Turn(request, cache, shape.context - len(request.ids))
            for request, cache in zip(order, caches, strict=True)
        ]
        self.spans = [Span(row, kept[request.session], len(request.ids)) for row, request in enumerate(leaders)]
        row_of = {request.session: row for row, request in enumerate(order)}
        self.followers = [(row_of[follower.session], row_of[leader.session]) for follower, leader in following]

    def choice(self, device: torch.device) -> Choice:
        """How these rows choose their ids."""
        asked = [turn.request for turn in self.live]
        return Choice(
            [request.sampling.temperature for request in asked], [request.sampling.top_p for request in asked],
            [(request.seed, request.turn) for request in asked], device,
        )

    def take(self, ids: Sequence[int], logprobs: Sequence[float]) -> list[int] | None:
        """Note an id for every row; rows that have ended leave. The rows kept, in their new order, or None for all."""
        ended = []
        for row, turn in enumerate(self.live):
            turn.ids.append(ids[row])
            turn.logprobs.append(logprobs[row])
            turn.left -= 1
            if ids[row] in turn.stop:
                turn.stopped = True
                ended.append(row)
            elif turn.left == 0:
                ended.append(row)
        return self._leave(ended) if ended else None

    def _leave(self, ended: Sequence[int]) -> list[int]:
        """Fill the place of each ended row with the last live one."""
        kept = list(range(len(self.live)))
        for row in reversed(ended):
            last = len(self.live) - 1
            self._pool.swap(row, last)
            self.live[row], self.live[last] = self.live[last], self.live[row]
            kept[row], kept[last] = kept[last], kept[row]
            self.done.append(self.live.pop())
            kept.pop()
        return kept

    def stored(self) -> None:
        """The cache now holds the last id of every row."""
        for turn in self.live:
            turn.cache.ids.append(turn.ids[-1])


def _leaders(requests: Sequence[Request]) -> tuple[list[Request], list[tuple[Request, Request]]]:
    """Requests that compute their prefix, and (follower, leader) pairs where another's is the same."""
    first: dict[tuple[int, ...], Request] = {}
    following = []
    for request in requests:
        leader = first.setdefault(request.ids, request)
        if leader is not request:
            following.append((request, leader))
    return list(first.values()), following


def _chunks(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Neighbouring rows together while their padded ids fit a chunk; a long row in pieces of its own."""
    chunk: list[Span] = []
    width = 0
    for span in spans:
        start = span.start
        while span.end - start > _CHUNK:
            if chunk:
                yield chunk
                chunk, width = [], 0
            yield [Span(span.row, start, start + _CHUNK)]
            start += _CHUNK
        rest = Span(span.row, start, span.end)
        wider = max(width, rest.end - rest.start)
        if chunk and wider * (len(chunk) + 1) > _CHUNK:
            yield chunk
            chunk, wider = [], rest.end - rest.start
        chunk.append(rest)
        width = wider
    if chunk:
        yield chunk
