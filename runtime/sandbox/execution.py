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
from guerdon.runtime.sandbox.spec import OOM_FIRST

QUIET_SECONDS = 1.0
"""After this long without output the service is asked whether the program has ended: something that it left
behind may hold the pipe open."""
STARTS = 4
START_SECONDS = 20.0
"""How long the runtime may take to start a program, on a loaded machine."""
POLL_SECONDS = 5.0
KILLED = 137
"""The exit code of what SIGKILL ended."""
# The mark says that the program's own start came after: without it, the infrastructure failed, not the program.
# It is written before anything of the caller's runs, so nothing can forge its absence or presence.
BEGIN = f'printf %s "$1" >&2; shift; {OOM_FIRST}; cd "$1" || exit 126; shift; '
WRAP = BEGIN + 'exec "$@"'
# Podman drops what is still to be read of the output once stdin cannot be written: what a program leaves of its
# stdin is read to the end for it.
WRAP_DRAIN = BEGIN + '"$@"; code=$?; cat >/dev/null; exit $code'


@dataclass(slots=True)
class Output:
    """What came out so far: each stream cut at the limit, the rest counted and dropped."""

    limit: int
    mark: bytes
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    marked: bool = False
    begun: float = field(default_factory=time.monotonic)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    on_mark: Callable[[], None] = lambda: None

    def add(self, kind: int, data: bytes) -> None:
        """Take one frame."""
        if kind == rest.STDOUT:
            self._extend(self.out, data, self.limit)
            return
        room = self.limit if self.marked else self.limit + len(self.mark)
        self._extend(self.err, data, room)
        if not self.marked and len(self.err) >= len(self.mark) and self.err.startswith(self.mark):
            self.marked, self.begun = True, time.monotonic()
            self.started.set()
            self.on_mark()
            del self.err[: len(self.mark)]

    def _extend(self, buffer: bytearray, data: bytes, limit: int) -> None:
        room = limit - len(buffer)
        if len(data) > room:
            self.truncated = True
        buffer += data[: max(room, 0)]


class NotStarted(Exception):
    """Nothing of the caller's ran: the reason, and the exit code where there is one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


@dataclass(frozen=True, slots=True)
class Control:
    """What a run may do to its sandbox: `kill` ends all but PID 1, `clear` ends what uid 1000 runs, `alive` raises
    SandboxFault where the sandbox itself has ended."""

    kill: Callable[[], Awaitable[None]]
    clear: Callable[[], Awaitable[None]]
    alive: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """One program to run: who runs it, on what input, where, and within which bounds (seconds, bytes)."""

    argv: Sequence[str]
    user: str
    stdin: bytes = b""
    wall: float = 60.0
    output: int = 1024 * 1024
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    drains: bool = False
    """The program reads its stdin to the end, come what may."""

    def wrapped(self, mark: str) -> list[str]:
        """The command line with our own beginning."""
        script = WRAP if self.drains or not self.stdin else WRAP_DRAIN
        return ["/bin/sh", "-c", script, "sh", mark, self.cwd, *self.argv]


async def execute(engine: Engine, container: str, command: Command, control: Control) -> ExecResult:
    """Run a program to its end. Raises SandboxFault.

    What did not start at all is tried again, once the user's processes are gone: an agent can kill or stop the
    runtime's own child while that becomes uid 1000, and must not turn its episode into a fault of ours by it.
    """
    for attempt in range(STARTS):
        try:
            return await _once(engine, container, command, control)
        except NotStarted as error:
            last = error
            # In this order: a stopped start holds the service's lock on the container until it is killed.
            await control.clear()
            await control.alive()
            await asyncio.sleep(0.05 * 2**attempt)
    if last.code == KILLED:
        # Nothing of the user's runs any more: it is the kernel, for want of memory that the user's files hold.
        return ExecResult(KILLED, b"", b"", 0.0)
    raise SandboxFault("exec-lost", f"a command did not start in {container[:12]}: {last.reason or 'no reason given'}",
                       "run the episode again; `guerdon doctor` looks at the service")


async def open_stream(engine: Engine, container: str, options: Mapping[str, Any]) -> rest.ExecStream:
    """Start an exec. Raises SandboxFault where the sandbox or the service is gone, else NotStarted."""
    try:
        return await engine.open_exec(container, options, START_SECONDS)
    except SandboxFault as fault:
        # `sandbox-died` too: whoever tries again asks first how the sandbox ended.
        if fault.kind in ("service-slow", "exec-lost", "sandbox-died"):
            raise NotStarted(fault.message) from fault
        raise


async def _once(engine: Engine, container: str, command: Command, control: Control) -> ExecResult:
    """One try. Raises SandboxFault, NotStarted."""
    mark = secrets.token_hex(8)
    stream = await open_stream(engine, container, {
        "AttachStdin": bool(command.stdin), "AttachStdout": True, "AttachStderr": True, "User": command.user,
        "WorkingDir": "/", "Env": [f"{key}={value}" for key, value in command.env.items()],
        "Cmd": command.wrapped(mark),
    })
    life = engine.incarnation()
    taken = Output(command.output, mark.encode())
    feeder = asyncio.create_task(_feed(stream, command.stdin, taken.started)) if command.stdin else None
    try:
        code = await _bounded(engine, stream, taken, command.wall)
        if code is None:
            await control.kill()
    except asyncio.CancelledError:
        # The caller gave up: what it started must not run on.
        with contextlib.suppress(SandboxFault):
            await asyncio.shield(control.kill())
        raise
    finally:
        if feeder is not None:
            feeder.cancel()
        stream.close()
    if engine.incarnation() != life:
        raise down(rest.ConnectionLost("it died while a command ran"))
    if not taken.marked:
        raise NotStarted(bytes(taken.err[:300]).decode(errors="replace").strip(), code)
    if code is not None and (code == KILLED or code < 0):
        # The program's own end, or that of the whole sandbox under it? (Podman says -1 where it never heard.)
        await control.alive()
    return ExecResult(code, bytes(taken.out), bytes(taken.err), time.monotonic() - taken.begun, code is None,
                      taken.truncated)


async def _bounded(engine: Engine, stream: rest.ExecStream, taken: Output, wall: float) -> int | None:
    """Follow a command to its end: its exit code, None when its time was up. The time of the runtime's own start
    is not the program's."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(START_SECONDS) as clock:
            taken.on_mark = lambda: clock.reschedule(loop.time() + max(wall, 0.001))
            return await _follow(engine, stream, taken)
    except TimeoutError:
        return None


async def _feed(stream: rest.ExecStream, stdin: bytes, started: asyncio.Event) -> None:
    """Write stdin once the mark is there; a program that does not read it to the end is within its rights."""
    await started.wait()
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
                code = await _ended(engine, stream)
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


async def _ended(engine: Engine, stream: rest.ExecStream) -> int | None:
    """The exit code of a command that has ended; None while it runs, or where the service is busy."""
    try:
        return await engine.exit_code(stream.id, patience=0.0, timeout=POLL_SECONDS)
    except SandboxFault as fault:
        if fault.kind == "service-slow":
            return None
        raise
