"""Ctrl-C as an orderly stop, once and for all: a second one must not tear the clean-up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """Somebody asked the run to stop; everything sealed so far is kept."""


class Stop:
    """A wish to stop, that tasks can wait for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def request(self) -> None:
        """Wish it; wishing twice is the same."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether anybody did."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Until somebody does."""
        await self._event.wait()


async def unless_stopped(work: Awaitable[T], stop: Stop | None) -> T:
    """The result of `work`; a stop cancels it, waits until it has cleaned up and raises Interrupted."""
    task = asyncio.ensure_future(work)
    halt = asyncio.ensure_future((stop or Stop()).wait())
    try:
        await asyncio.wait({task, halt}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Interrupted
        return task.result()
    finally:
        halt.cancel()
        task.cancel()
        await asyncio.gather(task, halt, return_exceptions=True)


@contextmanager
def stop_on_signals(say: Callable[[str], None]) -> Iterator[Stop]:
    """SIGINT and SIGTERM become a Stop while the block runs; keep the block open until all is cleaned up.

    Outside the main thread, where no signal arrives, the Stop is simply never wished for.
    """
    stop = Stop()
    loop = asyncio.get_running_loop()

    def wished() -> None:
        say("still stopping: sandboxes are being removed" if stop.requested else "stopping: no new episodes")
        stop.request()

    caught = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, wished)
        except (ValueError, RuntimeError, NotImplementedError):
            continue
        caught[number] = before
    try:
        yield stop
    finally:
        for number, before in caught.items():
            loop.remove_signal_handler(number)
            # The loop puts back Python's own handlers; whoever had others keeps them.
            signal.signal(number, before)
