"""One command in a sandbox: bounded output, a wall-clock limit that ends the whole process tree."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.runtime.contracts.sandbox import ExecResult, SandboxFault
from guerdon.runtime.sandbox import rest
from guerdon.runtime.sandbox.engine import Engine, down

QUIET_SECONDS = 1.0
"""After this long without output the service is asked whether the program has ended: something that it left
behind may hold the pipe open."""
STARTS = 4
KILLED = 137
"""The exit code of what SIGKILL ended."""
# The mark says that the program's own start came after: without it, the infrastructure failed, not the program.
# It is written before anything of the caller's runs, so nothing can forge its absence or presence.
WRAP = 'printf %s "$1" >&2; shift; cd "$1" || exit 126; shift; exec "$@"'


@dataclass(slots=True)
class Output:
    """What came out so far: each stream cut at the limit, the rest counted and dropped."""

    limit: int
    mark: bytes
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    marked: bool = False

    def add(self, kind: int, data: bytes) -> None:
        """Take one frame."""
        if kind == rest.STDOUT:
            self._extend(self.out, data, self.limit)
            return
        room = self.limit if self.marked else self.limit + len(self.mark)
        self._extend(self.err, data, room)
        if not self.marked and len(self.err) >= len(self.mark) and self.err.startswith(self.mark):
            self.marked = True
            del self.err[: len(self.mark)]

    def _extend(self, buffer: bytearray, data: bytes, limit: int) -> None:
        room = limit - len(buffer)
        if len(data) > room:
            self.truncated = True
        buffer += data[: max(room, 0)]


class NotStarted(Exception):
    """The runtime failed before anything of the caller's ran; the message is its reason."""


async def execute(engine: Engine, container: str, argv: Sequence[str], **options: Any) -> ExecResult:
    """Run a program to its end (options as for `_once`). Raises SandboxFault.

    What did not start at all may be tried again: nothing of the caller's has run.
    """
    reason = ""
    for attempt in range(STARTS):
        try:
            return await _once(engine, container, argv, **options)
        except NotStarted as error:
            reason = str(error)
            await options["alive"]()
            await asyncio.sleep(0.05 * 2**attempt)
    raise SandboxFault("exec-lost", f"a command did not start in {container[:12]}: {reason or 'no reason given'}",
                       "run the episode again; `guerdon doctor` looks at the service")


async def _once(
    engine: Engine, container: str, argv: Sequence[str], *, user: str, stdin: bytes, wall: float, output: int,
    env: Mapping[str, str], cwd: str, kill: Callable[[], Awaitable[None]],
    alive: Callable[[], Awaitable[None]],
) -> ExecResult:
    """Run a program to its end. `kill` ends every process of the sandbox but PID 1's; `alive` raises where the
    sandbox itself has ended. Raises SandboxFault, NotStarted."""
    mark = secrets.token_hex(8)
    options = {
        "AttachStdin": bool(stdin), "AttachStdout": True, "AttachStderr": True, "User": user, "WorkingDir": "/",
        "Env": [f"{key}={value}" for key, value in env.items()],
        "Cmd": ["/bin/sh", "-c", WRAP, "sh", mark, cwd, *argv],
    }
    stream = await engine.open_exec(container, options)
    life = engine.incarnation()
    begun = time.monotonic()
    taken = Output(output, mark.encode())
    feeder = asyncio.create_task(_feed(stream, stdin)) if stdin else None
    try:
        async with asyncio.timeout(max(wall, 0.001)):
            code = await _follow(engine, stream, taken)
    except TimeoutError:
        await kill()
        return _result(None, taken, begun, timed_out=True)
    except asyncio.CancelledError:
        # The caller gave up: what it started must not run on.
        with contextlib.suppress(SandboxFault):
            await asyncio.shield(kill())
        raise
    finally:
        if feeder is not None:
            feeder.cancel()
        stream.close()
    if engine.incarnation() != life:
        raise down(rest.ConnectionLost("it died while a command ran"))
    if not taken.marked:
        raise NotStarted(bytes(taken.err[:300]).decode(errors="replace").strip())
    if code == KILLED:
        # The program's own end, or that of the whole sandbox under it?
        await alive()
    return _result(code, taken, begun)


def _result(code: int | None, taken: Output, begun: float, *, timed_out: bool = False) -> ExecResult:
    """What became of the command."""
    return ExecResult(code, bytes(taken.out), bytes(taken.err), time.monotonic() - begun, timed_out,
                      taken.truncated)


async def _feed(stream: rest.ExecStream, stdin: bytes) -> None:
    """Write stdin; a program that does not read it to the end is within its rights."""
    with contextlib.suppress(rest.ConnectionLost):
        for at in range(0, len(stdin), rest.CHUNK):
            await stream.send(stdin[at:at + rest.CHUNK])
        stream.end_input()


async def _follow(engine: Engine, stream: rest.ExecStream, taken: Output) -> int:
    """Read frames until the program has ended; its exit code. Raises SandboxFault."""
    pending = asyncio.ensure_future(stream.frame())
    quiet = QUIET_SECONDS
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=quiet)
            if not done:
                code = await engine.exit_code(stream.id, patience=0.0)
                if code is not None:
                    return code
                quiet = min(quiet * 2, 8 * QUIET_SECONDS)
                continue
            frame = pending.result()
            if frame is None:
                break
            taken.add(*frame)
            pending = asyncio.ensure_future(stream.frame())
    finally:
        pending.cancel()
    code = await engine.exit_code(stream.id)
    if code is None:
        raise SandboxFault("exec-lost", "the connection to a running command was lost", "run the episode again")
    return code
