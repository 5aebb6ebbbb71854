"""A sampler over the learner's own tensors: batched decoding of ragged prefixes, a cache for each session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from guerdon.runtime.contracts.sampling import Request, Sampled, SamplerFault
from guerdon.runtime.learner.attention import SpanAttention, StepAttention
from guerdon.runtime.learner.cache import CachePool
from guerdon.runtime.learner.decode import Decoder
from guerdon.runtime.learner.rows import Rows, chunks
from guerdon.runtime.learner.shape import ModelShape


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
        rows = Rows(requests, self._pool, self._shape)
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

    def _prefill(self, rows: Rows) -> Tensor:
        """Fill the caches of all rows up to their prefix; the hidden state [rows, hidden] of each prefix's last id."""
        device, decoder = self._decoder.device, self._decoder
        hidden = torch.empty(len(rows.live), self._shape.hidden, dtype=decoder.dtype, device=device)
        for spans in chunks(rows.spans):
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

    def _decode(self, rows: Rows, hidden: Tensor) -> None:
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

    def _view(self, rows: Rows) -> StepAttention:
        lengths = [len(turn.cache.ids) for turn in rows.live]
        if max(lengths) >= self._pool.capacity:
            self._pool.grow()
        return StepAttention(self._shape, self._pool.planes, lengths)
