"""A bash kept open over one hijacked exec: about a millisecond a command, and framing that survives its commands."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import time
from dataclasses import dataclass, field

from guerdon.runtime.contracts.sandbox import ExecResult, SandboxFault
from guerdon.runtime.sandbox import rest
from guerdon.runtime.sandbox.engine import Engine, down
from guerdon.runtime.sandbox.execution import KILLED, START_SECONDS, STARTS, Control, NotStarted, open_stream
from guerdon.runtime.sandbox.spec import OOM_FIRST, USER

CONTROL = 61
"""The descriptor that carries output and marks to us; a command gets it as its stdout only."""
START = ["/bin/bash", "--noprofile", "--norc", "-c",
         f"{OOM_FIRST}; exec {CONTROL}>&1 2>&1; exec /bin/bash --noprofile --norc"]
BROKEN = b"unexpected EOF while looking for matching `)'\n"
"""bash 5.2 corrupts its own memory on an unclosed `$(` and dies in the middle of the next command."""


@dataclass(slots=True)
class Scan:
    """Cuts a command's output at `limit` bytes while looking for its mark, whatever the chunks are."""

    mark: bytes
    limit: int
    out: bytearray = field(default_factory=bytearray)
    held: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    tail: bytes | None = None

    def add(self, data: bytes) -> bool:
        """Take a chunk; True once the whole trailer (exit code and folder, NUL-ended) is there."""
        self.held += data
        at = self.held.find(self.mark)
        if at < 0:
            self._keep(len(self.held) - len(self.mark) + 1)
            return False
        self._keep(at)
        end = self.held.find(b"\0", len(self.mark))
        if end < 0:
            return False
        self.tail = bytes(self.held[len(self.mark):end])
        return True

    def finish(self) -> None:
        """No mark came: all that is held is output."""
        self._keep(len(self.held))

    def _keep(self, count: int) -> None:
        if count <= 0:
            return
        room = max(self.limit - len(self.out), 0)
        self.truncated = self.truncated or count > room
        self.out += self.held[:min(count, room)]
        del self.held[:count]


class PodmanShell:
    """One open bash; replaced when a command ends it or its time runs out. One command at a time."""

    def __init__(self, engine: Engine, container: str, cwd: str, control: Control) -> None:
        self._engine = engine
        self._container = container
        self._cwd = cwd
        self._home = cwd
        self._control = control
        self._stream: rest.ExecStream | None = None
        self._life = (0, 0)
        self._turn = asyncio.Lock()
        self._closed = False
        self._killed = False

    def outlived(self) -> None:
        """Note that bash is being killed from outside: the next command gets another one."""
        self._killed = True

    async def open(self) -> None:
        """Start bash in the last known folder, or in the first where that is gone. Raises SandboxFault."""
        said = b""
        for attempt in range(STARTS):
            said = await self._try_open()
            if self._stream is not None:
                return
            # See `execute`: what the user left running may be what hinders the start.
            await self._control.clear()
            await self._control.alive()
            await asyncio.sleep(0.05 * 2**attempt)
        raise SandboxFault("exec-lost", "a shell did not start: "
                           f"{said[:300].decode(errors='replace').strip() or 'no reason given'}",
                           "see that the image has /bin/bash; then run the episode again")

    async def _try_open(self) -> bytes:
        """Start bash once; what was said instead of a first answer."""
        try:
            self._stream = await open_stream(self._engine, self._container, {
                "AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "User": USER, "WorkingDir": "/",
                "Cmd": START,
            })
        except NotStarted as error:
            return error.reason.encode()
        self._life, self._killed = self._engine.incarnation(), False
        folder, home = shlex.quote(self._cwd), shlex.quote(self._home)
        try:
            scan = await self._exchange(f"cd -- {folder} 2>/dev/null || cd -- {home}", 64 * 1024, START_SECONDS)
        except TimeoutError as late:
            scan = late.args[0]
        except BaseException:
            self._drop()
            raise
        if scan.tail is None:
            self._drop()
        return bytes(scan.out)

    async def run(self, command: str, *, wall: float, output: int = 64 * 1024) -> ExecResult:
        """Run a command; past `wall` seconds every process of the agent is killed and the shell replaced.
        Raises SandboxFault."""
        if "\0" in command:
            return ExecResult(2, b"bash: a command cannot hold a NUL byte\n", b"", 0.0)
        async with self._turn:
            if self._closed:
                raise SandboxFault("exec-lost", "the shell is closed", "open another")
            if self._killed:
                self._drop()
            if self._stream is None:
                await self.open()
            begun = time.monotonic()
            try:
                scan = await self._exchange(command, output, wall)
            except TimeoutError as late:
                scan = late.args[0]
                await self._control.clear()
                self._drop()
                return ExecResult(None, bytes(scan.out), b"", time.monotonic() - begun, True, scan.truncated)
            except asyncio.CancelledError:
                with contextlib.suppress(SandboxFault):
                    await asyncio.shield(self._control.clear())
                self._drop()
                raise
            code = await self._ended(scan)
            return ExecResult(code, bytes(scan.out), b"", time.monotonic() - begun, False, scan.truncated)

    async def _exchange(self, command: str, limit: int, wall: float) -> Scan:
        """Send one command and read up to its mark or the end. Raises TimeoutError with the scan so far."""
        assert self._stream is not None
        # The mark is sent in two halves, so that a shell that prints its input does not print the mark.
        first, second = secrets.token_hex(8), secrets.token_hex(8)
        scan = Scan(f"{first}{second} ".encode(), limit)
        line = (f"{{ eval {shlex.quote(command)}\n}} </dev/null >&{CONTROL} 2>&1 {CONTROL}>&-\n"
                f"\\builtin printf '%s%s %s %s\\0' {first} {second} \"$?\" \"$PWD\" >&{CONTROL}\n")
        try:
            async with asyncio.timeout(max(wall, 0.001)):
                with contextlib.suppress(rest.ConnectionLost):
                    await self._stream.send(line.encode("utf-8", "surrogatepass"))
                while (frame := await self._stream.frame()) is not None:
                    if scan.add(frame[1]):
                        return scan
        except TimeoutError:
            scan.finish()
            raise TimeoutError(scan) from None
        scan.finish()
        return scan

    async def _ended(self, scan: Scan) -> int:
        """The command's exit code; where it ended the shell itself, the next command gets another one."""
        if scan.tail is not None:
            code, _, folder = scan.tail.partition(b" ")
            self._cwd = folder.decode("utf-8", "surrogateescape") or self._home
            if scan.out.endswith(BROKEN):
                self._drop()
            return int(code) if code.isdigit() else 0
        stream, life = self._stream, self._life
        assert stream is not None
        self._drop()
        code_of_shell = await self._engine.exit_code(stream.id)
        if self._engine.incarnation() != life:
            raise down(rest.ConnectionLost("it died while a shell was open"))
        if code_of_shell is None:
            raise SandboxFault("exec-lost", "the connection to a shell was lost", "run the episode again")
        if code_of_shell == KILLED:
            await self._control.alive()
        return code_of_shell

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def close(self) -> None:
        """End the shell; what it started in the background runs on until the sandbox goes."""
        self._closed = True
        if self._stream is not None:
            self._stream.end_input()
        self._drop()
