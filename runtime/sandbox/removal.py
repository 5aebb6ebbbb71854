"""Removing containers: promptly where we may kill PID 1 ourselves, and again where Podman answers a false error."""

from __future__ import annotations

import asyncio

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.sandbox import hostside
from guerdon.runtime.sandbox.engine import Engine

TRIES = 6


async def remove(engine: Engine, container: str, pid: int = 0) -> None:
    """Kill and remove; a container that is gone already is fine. Raises SandboxFault `remove-failed`."""
    if not (pid and await asyncio.to_thread(hostside.kill_init, pid, container)):
        await engine.request("POST", f"/containers/{container}/kill?signal=KILL", repeat=True)
    message = ""
    for attempt in range(TRIES):
        # Not forced at first: a forced removal of a container that is just dying waits 100 ms and more.
        force = "true" if attempt else "false"
        reply = await engine.request("DELETE", f"/containers/{container}?force={force}&timeout=0&v=true")
        if reply.status in (200, 204, 404):
            return
        message = reply.message
        await asyncio.sleep(0.01 * 2**attempt)
    raise SandboxFault("remove-failed", f"the container {container[:12]} cannot be removed: {message}",
                       "guerdon sandbox gc tries again")
