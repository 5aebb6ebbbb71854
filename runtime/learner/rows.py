"""The rows of a batch: which prefix is computed where, which turns are live, and which have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from guerdon.runtime.contracts.sampling import Request
from guerdon.runtime.learner.attention import Span
from guerdon.runtime.learner.cache import Cache, CachePool
from guerdon.runtime.learner.noise import Choice
from guerdon.runtime.learner.shape import ModelShape

_CHUNK = 2048
"""Padded ids that are computed at once."""
_AREA = 2**22
"""Padded ids times the longest prefix: what bounds the mask of a chunk."""
_LEAST = 16
_AHEAD = 64


class Turn:
    """A turn on its way: what it asked, its cache, and what it has so far."""

    __slots__ = ("cache", "ids", "left", "logprobs", "request", "stop", "stopped")

    def __init__(self, request: Request, cache: Cache, room: int) -> None:
        self.request, self.cache = request, cache
        self.left = min(request.sampling.max_tokens, room)
        self.stop = frozenset(request.sampling.stop)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.stopped = False


class Rows:
    """The live rows of a batch: row r lies in slot r. Rows that prefill come first, the most new ids first."""

    def __init__(self, requests: Sequence[Request], pool: CachePool, shape: ModelShape) -> None:
        self._pool = pool
        self.done: list[Turn] = []
        leaders, following = _leaders(requests)
        known = pool.known
        kept = {r.session: min(known(r.session, r.ids), len(r.ids) - 1) for r in leaders}
        leaders.sort(key=lambda request: kept[request.session] - len(request.ids))
        order = leaders + [follower for follower, _ in following]
        caches = pool.arrange([request.session for request in order])
        for request, cache in zip(order, caches, strict=True):
            cache.ids = cache.ids[: kept.get(request.session, 0)]
        pool.reserve(max(min(len(r.ids) + min(r.sampling.max_tokens, _AHEAD), shape.context) for r in order))
        self.live = [
            Turn(request, cache, shape.context - len(request.ids))
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


def chunks(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Neighbouring rows together while their padded ids fit a chunk; a long row in pieces of its own."""
    chunk: list[Span] = []
    limit = max(_LEAST, min(_CHUNK, _AREA // max((span.end for span in spans), default=1)))
    width = 0
    for span in spans:
        start = span.start
        while span.end - start > limit:
            if chunk:
                yield chunk
                chunk, width = [], 0
            yield [Span(span.row, start, start + limit)]
            start += limit
        rest = Span(span.row, start, span.end)
        wider = max(width, rest.end - rest.start)
        if chunk and wider * (len(chunk) + 1) > limit:
            yield chunk
            chunk, wider = [], rest.end - rest.start
        chunk.append(rest)
        width = wider
    if chunk:
        yield chunk
