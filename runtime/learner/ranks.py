"""The controller's side of the learner: starts the ranks, speaks to the first one, is Learner and Sampler at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.learner import LearnerFault, LossConfig, Row, WeightsRef
from guerdon.runtime.contracts.sampling import Request, Sampled, SamplerFault
from guerdon.runtime.learner import fit, wire
from guerdon.runtime.learner.processes import Processes
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape
from guerdon.runtime.learner.wire import Command

_FAREWELL = 5.0
"""Seconds that ranks get to end by themselves."""


class Ranks:
    """A learner of any number of rank processes on this machine; calls are carried out one after another.

    A call that is cancelled is finished by the ranks all the same, before the next one begins. A rank that dies ends
    all ranks: the call under way and every later one raise LearnerFault (SamplerFault in `generate` and `forget`).
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._lock = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()
        self._homes: dict[str, int] = {}
        self._seen = 0
        self._fault = ""
        self._closed = False
        self.shape = ModelShape()
        """The model that the ranks hold."""

    @classmethod
    async def start(cls, config: LearnerConfig) -> Ranks:
        """Start the ranks and build the model; its weights are published as version 0. Raises LearnerFault."""
        fit.check(config)
        count = config.parallel.ranks
        ranks = cls(Processes(count, fit.threads(config.threads, count)))
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                await ranks._processes.start(theirs)
            ranks._reader, ranks._writer = await asyncio.open_connection(sock=mine)
            ranks._death = asyncio.ensure_future(ranks._processes.first_death())
            ranks.shape = await ranks._call("start", config)
        except BaseException:
            await asyncio.shield(ranks._end())
            mine.close()
            raise
        return ranks

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _death: asyncio.Future[int]

    # -- Learner -----------------------------------------------------------------------------------------------------

    async def logprobs(self, rows: Sequence[Row], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each id given those before it (0.0 at position 0), for every row."""
        found: list[tuple[float, ...]] = await self._call("logprobs", tuple(rows), temperature)
        return found

    async def train_step(self, rows: Sequence[Row], loss: LossConfig, lr: float) -> Mapping[str, float]:
        """One update; the metrics of the contract."""
        metrics: dict[str, float] = await self._call("train_step", tuple(rows), loss, lr)
        return metrics

    async def renew(self) -> None:
        """Keep the weights, forget the optimizer's state, count updates from 0; `publish` before sampling."""
        await self._call("renew")

    async def keep_reference(self) -> None:
        """Remember the present weights as the reference policy; checkpoints hold it too."""
        await self._call("keep_reference")

    async def reference(self, rows: Sequence[Row], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """`logprobs` under the reference policy."""
        found: list[tuple[float, ...]] = await self._call("reference", tuple(rows), temperature)
        return found

    async def publish(self) -> WeightsRef:
        """Make the present weights those that are sampled from."""
        published: WeightsRef = await self._call("publish")
        return published

    async def save(self, folder: Path) -> None:
        """Write a checkpoint into a new folder, durably."""
        await self._call("save", folder.absolute())

    async def load(self, folder: Path) -> None:
        """Go on from a checkpoint; `publish` before sampling."""
        await self._call("load", folder.absolute())

    async def export_hf(self, folder: Path) -> None:
        """Write the weights in the layout of Hugging Face."""
        await self._call("export_hf", folder.absolute())

    # -- Sampler -----------------------------------------------------------------------------------------------------

    async def generate(self, requests: Sequence[Request]) -> list[Sampled]:
        """One turn for each request; sessions are dealt to the ranks in the order of their first appearance.

        Raises SamplerFault, also where weights have been trained or loaded and not yet published.
        """
        shares: list[list[Request]] = [[] for _ in self._processes.members]
        places = []
        for request in requests:
            home = self._home(request.session)
            places.append((home, len(shares[home])))
            shares[home].append(request)
        found = await self._sampler_call("generate", shares)
        return [found[rank][index] for rank, index in places]

    async def forget(self, sessions: Sequence[str]) -> None:
        """Drop the caches of sessions that have ended."""
        for session in sessions:
            self._homes.pop(session, None)
        await self._sampler_call("forget", tuple(sessions))

    def _home(self, session: str) -> int:
        if session not in self._homes:
            self._homes[session] = self._seen % len(self._processes.members)
            self._seen += 1
        return self._homes[session]

    async def _sampler_call(self, name: str, *arguments: Any) -> Any:
        try:
            return await self._call(name, *arguments)
        except LearnerFault as fault:
            raise SamplerFault(str(fault)) from fault

    # -- both --------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End every rank; safe to call twice, and while a call is under way."""
        if not self._closed:
            self._closed = True
            if not self._lock.locked() and not self._death.done():
                with contextlib.suppress(OSError):
                    self._writer.write(wire.pack(Command("close")))
                    await self._writer.drain()
                await self._processes.wait(_FAREWELL)
        await asyncio.shield(self._end())

    async def _end(self) -> None:
        self._fault = self._fault or "the learner is closed: start another one"
        await self._processes.kill()
        if hasattr(self, "_writer"):
            self._writer.close()

    async def _call(self, name: str, *arguments: Any) -> Any:
        task = asyncio.ensure_future(self._ask(Command(name, arguments)))
        self._calls.add(task)
        task.add_done_callback(self._finished)
        # Whoever waits may be cancelled; the answer is read all the same, or the next call would get it.
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains where the caller was cancelled

    async def _ask(self, command: Command) -> Any:
        async with self._lock:
            if self._fault:
                raise LearnerFault(self._fault)
            answer = asyncio.ensure_future(self._exchange(command))
            waits: list[asyncio.Future[Any]] = [answer, self._death]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and answer.exception() is None:
                return _value(answer.result())
            answer.cancel()
            raise LearnerFault(await self._died())

    async def _exchange(self, command: Command) -> wire.Answer:
        self._writer.write(wire.pack(command))
        await self._writer.drain()
        return await wire.read(self._reader)

    async def _died(self) -> str:
        """A rank has ended, or its link: end them all, and say which one was first."""
        if not self._fault:
            await asyncio.wait([self._death], timeout=_FAREWELL)
            what = self._processes.epitaph(self._death.result()) if self._death.done() else "the link to rank 0 broke"
            self._fault = f"{what}; start the learner again and load its last checkpoint"
        await self._processes.kill()
        return self._fault


def _value(answer: wire.Answer) -> Any:
    if answer.kind == "learner":
        raise LearnerFault(answer.value)
    if answer.kind == "sampler":
        raise SamplerFault(answer.value)
    return answer.value
