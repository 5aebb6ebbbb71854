"""Frames between controller and first rank: a length, then a pickle; the socket pair is theirs alone."""

from __future__ import annotations

import asyncio
import pickle
import socket
from dataclasses import dataclass
from typing import Any, Literal

_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Command:
    """What all ranks shall do: a method's name and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it: a value, or the text of a fault that left every rank well."""

    kind: Literal["value", "learner", "sampler"]
    value: Any


def pack(message: Command | Answer) -> bytes:
    """A message as one frame."""
    body = pickle.dumps(message, protocol=5)
    return len(body).to_bytes(_LENGTH, "big") + body


def send(link: socket.socket, message: Answer) -> None:
    """Write one message. Raises OSError where the other end has gone."""
    link.sendall(pack(message))


def receive(link: socket.socket) -> Command | None:
    """Read one message, waiting for it; None where the other end has gone."""
    length = _exactly(link, _LENGTH)
    body = _exactly(link, int.from_bytes(length, "big")) if length else b""
    return pickle.loads(body) if body else None  # noqa: S301 - an inherited socket pair, both ends are ours


def _exactly(link: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        try:
            part = link.recv(min(size, 1 << 20))
        except OSError:
            part = b""
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


async def read(stream: asyncio.StreamReader) -> Answer:
    """The controller's side of `send`. Raises IncompleteReadError where the rank has gone."""
    length = int.from_bytes(await stream.readexactly(_LENGTH), "big")
    answer: Answer = pickle.loads(await stream.readexactly(length))  # noqa: S301 - as above
    return answer
