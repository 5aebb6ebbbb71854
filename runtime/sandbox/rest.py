"""Podman's REST interface over its unix socket, on asyncio: small requests, and hijacked exec streams.

podman-py serves everything that is not on the path of each command; it cannot hijack an exec with stdin.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from guerdon.runtime.contracts.sandbox import SandboxFault

PREFIX = "/v4.0.0/libpod"
STDOUT, STDERR, ERROR = 1, 2, 3
"""Stream numbers of a frame; ERROR carries the service's own message (a program that could not be started)."""
CHUNK = 256 * 1024
SERVICE_REMEDY = "run it again: the service is started anew; `guerdon doctor` says more"


class ConnectionLost(Exception):
    """The service cannot be reached, or went away in the middle."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the service."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON ({} when it is none)."""
        try:
            return json.loads(self.body or b"{}")
        except ValueError:
            return {}

    @property
    def message(self) -> str:
        """The service's own words on an error."""
        value = self.json()
        text = value.get("message") if isinstance(value, dict) else None
        return str(text or self.body.decode(errors="replace"))


async def request(
    path: str, method: str, target: str, body: Mapping[str, Any] | None = None, timeout: float = 60.0
) -> Reply:
    """One request to the socket at `path`. Raises ConnectionLost; a slow answer is a SandboxFault."""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await _send(path, method, target, body, "Connection: close\r\n")
            try:
                return await _reply(reader)
            finally:
                writer.close()
    except TimeoutError:
        raise SandboxFault("service-slow", f"podman's service gave no answer to {method} {target} in {timeout:.0f} s",
                           "see whether the machine is overloaded; lower the number of sandboxes") from None
    except (OSError, EOFError, ValueError) as error:
        raise ConnectionLost(f"{method} {target}: {error}") from error


async def _send(
    path: str, method: str, target: str, body: Mapping[str, Any] | None, headers: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and write one request."""
    reader, writer = await asyncio.open_unix_connection(path, limit=CHUNK)
    data = b"" if body is None else json.dumps(body).encode()
    head = (f"{method} {PREFIX}{target} HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{headers}\r\n")
    writer.write(head.encode() + data)
    try:
        await writer.drain()
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers (lower-cased names)."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _reply(reader: asyncio.StreamReader) -> Reply:
    """Read one whole answer."""
    status, headers = await _head(reader)
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        return Reply(status, b"".join(parts))
    if "content-length" in headers:
        return Reply(status, await reader.readexactly(int(headers["content-length"])))
    return Reply(status, b"" if status in (204, 304) else await reader.read())


class ExecStream:
    """A hijacked exec: frames come out, bytes go in."""

    def __init__(self, id_: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.id = id_
        self._reader = reader
        self._writer = writer
        self._left = 0
        self._kind = 0

    async def frame(self) -> tuple[int, bytes] | None:
        """The next piece of output with its stream number; None at the end."""
        while not self._left:
            try:
                head = await self._reader.readexactly(8)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            self._kind, self._left = head[0], int.from_bytes(head[4:], "big")
        try:
            data = await self._reader.read(min(self._left, CHUNK))
        except ConnectionError:
            return None
        if not data:
            return None
        self._left -= len(data)
        return self._kind, data

    async def send(self, data: bytes) -> None:
        """Write to the process's stdin. Raises ConnectionLost."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise ConnectionLost(str(error)) from error

    def end_input(self) -> None:
        """Close the process's stdin."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()


async def open_exec(path: str, container: str, options: Mapping[str, Any], timeout: float = 60.0) -> ExecStream:
    """Create and start an exec; `options` as in the libpod API. Raises ConnectionLost, SandboxFault."""
    made = await request(path, "POST", f"/containers/{container}/exec", options, timeout)
    if made.status != 201:
        raise exec_fault(made, container)
    id_ = str(made.json()["Id"])
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await _send(path, "POST", f"/exec/{id_}/start", {"Detach": False, "Tty": False},
                                         "Connection: Upgrade\r\nUpgrade: tcp\r\n")
            try:
                status, headers = await _head(reader)
                if status not in (101, 200):
                    raise exec_fault(Reply(status, await reader.read(int(headers.get("content-length", "0")))),
                                     container)
            except BaseException:
                writer.close()
                raise
    except TimeoutError:
        raise SandboxFault("service-slow", f"podman's service did not start a command in {timeout:.0f} s",
                           "see whether the machine is overloaded") from None
    except (OSError, EOFError, ValueError) as error:
        raise ConnectionLost(f"exec in {container[:12]}: {error}") from error
    return ExecStream(id_, reader, writer)


def exec_fault(reply: Reply, container: str) -> SandboxFault:
    """What a refused exec means."""
    if reply.status == 404 or "no such container" in reply.message:
        return SandboxFault("sandbox-gone", f"the sandbox {container[:12]} is gone",
                            "it was removed from outside; run the episode again")
    if reply.status == 409 or "container state improper" in reply.message:
        return SandboxFault("sandbox-died", f"the sandbox {container[:12]} is not running any more",
                            "run the episode again")
    return SandboxFault("exec-lost", f"a command could not be started in {container[:12]}: {reply.message}",
                        "run the episode again; `guerdon doctor` looks at the service")


async def exit_code(path: str, exec_id: str, patience: float = 5.0, timeout: float = 60.0) -> int | None:
    """The exit code of an exec, waiting up to `patience` s for its end to be noted; None if it runs on."""
    end = asyncio.get_running_loop().time() + patience
    pause = 0.002
    while True:
        reply = await request(path, "GET", f"/exec/{exec_id}/json", timeout=timeout)
        if reply.status == 404:
            raise SandboxFault("exec-lost", "podman has no record of how a command ended", "run the episode again")
        state = reply.json()
        if not state.get("Running", False):
            return int(state.get("ExitCode", -1))
        if asyncio.get_running_loop().time() > end:
            return None
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
