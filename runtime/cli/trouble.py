"""What every command that needs sandboxes shares: one connection, one way to say what went wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from guerdon.runtime.contracts.policy import PolicyFault
from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxProvider
from guerdon.runtime.contracts.store import AssetFault, StoreFault
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.schedule.retry import HostFault
from guerdon.runtime.schedule.stop import Interrupted

TROUBLE, INTERRUPTED = 1, 130
Problems = (RunError, HostFault, StoreFault, AssetFault, PolicyFault, SandboxFault)
T = TypeVar("T")


async def provider() -> SandboxProvider:
    """guerdon's own Podman, started if it is not running; says what it found. Raises SandboxFault."""
    from guerdon.runtime.sandbox import PodmanProvider

    made = await PodmanProvider.start()
    for note in made.notes:
        print(note, file=sys.stderr)
    return made


def report(problem: BaseException) -> int:
    """One line for a known problem; the exit status that goes with it."""
    if isinstance(problem, Interrupted):
        print("stopped; what was sealed is kept, and the same command goes on from there", file=sys.stderr)
        return INTERRUPTED
    print(f"error: {problem}", file=sys.stderr)
    return TROUBLE


def attempt(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run an asynchronous command; known problems become one line."""
    import asyncio

    try:
        return asyncio.run(work())
    except (*Problems, Interrupted) as problem:
        return report(problem)
