"""Which infrastructure faults are tried again, which end an episode, and which end the whole run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from guerdon.runtime.contracts.sandbox import SandboxFault

T = TypeVar("T")

HOST_WIDE = frozenset({
    "service-down", "service-failed", "service-unusable", "podman-missing", "cgroup-unusable", "no-subids",
    "home-unusable",
    "disk-full", "image-gone", "image-failed", "image-unfit", "image-unreadable", "bad-recipe",
    "mmdebstrap-missing", "registry-unreachable", "network-failed",
})
"""Faults that the next episode would meet as well."""
SETTLED = frozenset({"bad-spec", "setup-refused", "rule-failed"})
"""Faults that another sandbox would meet as well."""


class HostFault(Exception):
    """The host cannot run episodes at all: the run stops with this one line, and can go on later."""


async def with_retries(
    attempt: Callable[[], Awaitable[T]], retries: int, again: Callable[[SandboxFault], None] = lambda fault: None
) -> T:
    """The result of `attempt`, tried `retries` times more on a SandboxFault; each in its own sandbox.

    `again` is called before each further try with the fault that made it needed. Raises HostFault for a fault of the
    whole host, the last SandboxFault when the tries are used up.
    """
    tried = 0
    while True:
        try:
            return await attempt()
        except SandboxFault as fault:
            if fault.kind in HOST_WIDE:
                raise HostFault(str(fault)) from fault
            if tried >= retries or fault.kind in SETTLED:
                raise
            tried += 1
            again(fault)


class Breaker:
    """Stops a run whose episodes fail on infrastructure one after the other, whatever the fault is called."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._row = 0

    def fine(self) -> None:
        """An episode got its verdict: the host works."""
        self._row = 0

    def fault(self, reason: str) -> None:
        """An episode was lost to infrastructure. Raises HostFault at the limit."""
        self._row += 1
        if self._row >= self._limit:
            raise HostFault(f"{self._row} episodes in a row were lost to infrastructure, last to: {reason}")
