"""Many requests, one batch: whatever waits when the sampler becomes free is sampled together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from guerdon.runtime.contracts.sampling import Request, Sampled, Sampler, SamplerFault


class QueueFull(Exception):
    """As many wait as may wait."""


@dataclass(slots=True)
class _Waiting:
    request: Request
    answer: asyncio.Future[Sampled]


class Batcher:
    """Gathers requests for a sampler; a batch holds a session once at most, and `most` turns at most."""

    def __init__(self, sampler: Sampler, most: int = 64, most_waiting: int = 256, gather: float = 0.002) -> None:
        self._sampler = sampler
        self._most, self._most_waiting, self._gather = most, most_waiting, gather
        self._waiting: list[_Waiting] = []
        self._gone: list[str] = []
        self._work: asyncio.Task[None] | None = None
        self.fault = ""
        """Why the last turn that was sampled by itself failed; empty where it did not."""

    async def generate(self, request: Request) -> Sampled:
        """One turn. Raises QueueFull, SamplerFault. Who is cancelled before the batch begins is left out of it."""
        if len(self._waiting) >= self._most_waiting:
            raise QueueFull
        one = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._go()
        try:
            return await one.answer
        finally:
            if one in self._waiting:
                self._waiting.remove(one)

    def forget(self, sessions: Sequence[str]) -> None:
        """Have caches dropped, once no batch is under way."""
        self._gone += sessions
        self._go()

    def _go(self) -> None:
        if (self._waiting or self._gone) and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._batches())

    async def close(self) -> None:
        """Begin no other batch, and end the one under way."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _batches(self) -> None:
        # Those who ask in the same moment shall not wait for the first of them.
        await asyncio.sleep(self._gather)
        while self._waiting or self._gone:
            if self._gone:
                gone, self._gone = self._gone, []
                with contextlib.suppress(SamplerFault):  # a sampler that fails has no caches left
                    await self._sampler.forget(gone)
                continue
            batch = self._next()
            try:
                await self._sample(batch)
            finally:
                for one in batch:
                    one.answer.cancel()  # no-op where it is there

    def _next(self) -> list[_Waiting]:
        """The longest waiting ones, a session's second request left for later."""
        batch: dict[str, _Waiting] = {}
        for one in self._waiting:
            if len(batch) < self._most:
                batch.setdefault(one.request.session, one)
        taken = list(batch.values())
        self._waiting = [one for one in self._waiting if batch.get(one.request.session) is not one]
        return taken

    async def _sample(self, batch: Sequence[_Waiting]) -> None:
        try:
            found = await self._sampler.generate([one.request for one in batch])
        except Exception as wrong:  # noqa: BLE001 - whatever it is, those who wait are told, and the next batch runs
            if len(batch) > 1:
                # One bad request must not take the others with it.
                for one in batch:
                    await self._sample([one])
                return
            self.fault = str(wrong) if isinstance(wrong, SamplerFault) else f"{type(wrong).__name__}: {wrong}"
            if not batch[0].answer.done():
                batch[0].answer.set_exception(SamplerFault(self.fault))
            return
        self.fault = ""
        for one, sampled in zip(batch, found, strict=True):
            if not one.answer.done():
                one.answer.set_result(sampled)
