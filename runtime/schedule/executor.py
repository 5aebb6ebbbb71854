"""Running many episodes side by side: admitted in order, bounded in number, stopped cleanly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from guerdon.runtime.schedule.stop import Interrupted, Stop

Job = TypeVar("Job")


def default_admission() -> int:
    """Episodes side by side where nobody says: one a processor this process may use."""
    return len(os.sched_getaffinity(0))


async def run_jobs(
    jobs: Iterator[Job], work: Callable[[Job], Awaitable[None]], admit: int, stop: Stop | None = None
) -> None:
    """Work on every job, `admit` at a time, beginning them in their order.

    The first exception of a job, or of `jobs` itself, cancels the others, waits until they have cleaned up
    and is raised; a stop does the same and raises Interrupted.
    """
    stop = stop or Stop()
    workers = [asyncio.create_task(_worker(jobs, work, stop)) for _ in range(max(1, admit))]
    halt = asyncio.create_task(stop.wait())
    try:
        waiting = {*workers, halt}
        while not halt.done() and (pending := waiting - {halt}):
            done, _ = await asyncio.wait({*pending, halt}, return_when=asyncio.FIRST_COMPLETED)
            if any(task is not halt and task.exception() for task in done):
                break
            waiting -= done - {halt}
    finally:
        await _end([*workers, halt])
    for worker in workers:
        if not worker.cancelled() and (wrong := worker.exception()):
            raise wrong
    if stop.requested:
        raise Interrupted


async def _worker(jobs: Iterator[Job], work: Callable[[Job], Awaitable[None]], stop: Stop) -> None:
    for job in jobs:
        await work(job)
        # Episodes without a sandbox may never wait for anything: let signals and the other workers in.
        await asyncio.sleep(0)
        if stop.requested:
            return


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
