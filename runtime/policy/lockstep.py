"""Many episodes, one batch a turn: who takes part is known beforehand, so the batch does not hang on timing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from guerdon.runtime.contracts.sampling import Request, Sampled, Sampler, SamplerFault


@dataclass(slots=True)
class Lockstep:
    """Gathers one request of every member, then samples them as one batch, sorted by session.

    A member takes part from the beginning until it leaves; while one is still busy with its tools, all wait. So
    the composition of each batch, and every number that comes of it, is the same on a slow and on a fast machine.
    """

    sampler: Sampler
    members: set[str] = field(default_factory=set)
    fault: SamplerFault | None = None
    """What ended the sampling; every later request is answered with it."""
    _waiting: dict[str, tuple[Request, asyncio.Future[Sampled]]] = field(default_factory=dict)
    _batch: asyncio.Task[None] | None = None

    def begin(self, sessions: Iterable[str]) -> None:
        """Say who takes part."""
        self.members = set(sessions)

    def join(self, session: str) -> None:
        """Take part again, after a lost sandbox."""
        self.members.add(session)

    def leave(self, session: str) -> None:
        """Take part no more; safe to say twice."""
        self.members.discard(session)
        self._next()

    async def generate(self, request: Request) -> Sampled:
        """One turn. Raises SamplerFault."""
        if self.fault is not None:
            raise self.fault
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting[request.session] = (request, future)
        self._next()
        try:
            return await future
        finally:
            if self._waiting.get(request.session, (None, None))[1] is future:
                del self._waiting[request.session]

    def _next(self) -> None:
        """Sample as soon as every member has asked."""
        if self._waiting and self._batch is None and self.members <= set(self._waiting):
            batch = dict(sorted(self._waiting.items()))
            self._waiting.clear()
            self._batch = asyncio.create_task(self._sample(batch))

    async def _sample(self, batch: dict[str, tuple[Request, asyncio.Future[Sampled]]]) -> None:
        try:
            done = await self.sampler.generate([request for request, _ in batch.values()])
        except SamplerFault as fault:
            self.fault = fault
            for _, future in batch.values():
                if not future.done():
                    future.set_exception(fault)
        else:
            for (_, future), sampled in zip(batch.values(), done, strict=True):
                if not future.done():
                    future.set_result(sampled)
        finally:
            self._batch = None
            self._next()
