"""Messages to token ids and back, never re-tokenising what was sampled; with a byte-level codec built in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.codec import instructions, read, write
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message


class Codec(Protocol):
    """A tokenizer: text to ids and ids to bytes, with a marker id for each role and one for the end.

    `encode` never yields a marker, whatever the text holds: that is why no observation can forge a role.
    """

    @property
    def markers(self) -> dict[str, int]:
        """Ids of `system`, `user`, `assistant`, `tool` and `end`."""
        ...

    def encode(self, text: str) -> tuple[int, ...]: ...

    def decode(self, ids: Sequence[int]) -> bytes: ...


class ByteCodec:
    """Ids 0..255 are bytes of UTF-8, 256.. the markers."""

    markers = {"system": 256, "user": 257, "assistant": 258, "tool": 259, "end": 260}  # noqa: RUF012
    vocabulary = 261

    def encode(self, text: str) -> tuple[int, ...]:
        # A lone surrogate cannot be UTF-8; it is shown as `?`, which no marker looks like.
        return tuple(text.encode(errors="replace"))

    def decode(self, ids: Sequence[int]) -> bytes:
        return bytes(i for i in ids if i < 256)


def must_read_back(message: Message, found: Action | Malformed) -> None:
    """Raise ValueError, in one line, where an assistant's message was written and another is `found`."""
    if isinstance(found, Malformed):
        raise ValueError(f"an assistant's message cannot be written: {found.errors[0]}")
    names, wanted = ([call.name for call in one.calls] for one in (found.message, message))
    if names != wanted:
        raise ValueError(f"an assistant's message cannot be written: the tools {wanted} would be read as {names}")
    if found.message.content != message.content.strip():
        raise ValueError("an assistant's message cannot be written: its words would be read otherwise: "
                         f"{found.message.content[:60]!r}")
    for ours, theirs in zip(message.calls, found.message.calls, strict=True):
        if _value(ours.arguments) != _value(theirs.arguments):
            raise ValueError(f"the call of {ours.name} cannot be written: {ours.arguments[:60]!r} would be read as "
                             f"{theirs.arguments[:60]!r}")


def _value(arguments: str) -> Any:
    """Raw arguments as their value; what is no JSON is its own text."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


class TextRenderer:
    """The Renderer contract over any codec."""

    def __init__(self, codec: Codec | None = None) -> None:
        self._codec: Codec = codec or ByteCodec()

    @property
    def stop(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        return (self._codec.markers["end"],)

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text of ids as bytes; markers have none."""
        return self._codec.decode(ids)

    def start(self, messages: Sequence[Message], tools: Sequence[ToolPlan]) -> tuple[int, ...]:
        """The ids of an opening: what the tools are, the messages, the assistant's marker."""
        told = self.instructions(tools)
        opening = [Message("system", told), *messages] if told else list(messages)
        return (*self._messages(opening), self._codec.markers["assistant"])

    def extend(self, ids: Sequence[int], observation: Sequence[Message]) -> tuple[int, ...]:
        """`ids` untouched, the turn closed where the policy did not close it, the observation, the marker."""
        end = self._codec.markers["end"]
        closed = tuple(ids) if ids and ids[-1] == end else (*ids, end)
        return (*closed, *self._messages(observation), self._codec.markers["assistant"])

    def turn(self, message: Message) -> tuple[int, ...]:
        """The ids of an assistant's turn, its end among them. Raises ValueError for one that reads back otherwise."""
        ids = (*self._codec.encode(self.write(message)), self._codec.markers["end"])
        must_read_back(message, self.parse(ids))
        return ids

    def instructions(self, tools: Sequence[ToolPlan]) -> str:
        """The text that tells a model of its tools; empty where it is told nothing."""
        return instructions(tools)

    def write(self, message: Message) -> str:
        """An assistant's message as text."""
        return write(message)

    def read(self, text: str) -> Action | Malformed:
        """An assistant's text as words and calls."""
        return read(text)

    def parse(self, ids: Sequence[int]) -> Action | Malformed:
        """What one turn's sampled ids ask for; a marker inside it, or bytes that are no text, are errors."""
        markers = self._codec.markers
        body = ids[:-1] if ids and ids[-1] == markers["end"] else ids
        forged = sorted(set(body) & set(markers.values()))
        try:
            text = self._codec.decode([i for i in body if i not in forged]).decode()
            errors: tuple[str, ...] = ()
        except UnicodeDecodeError as wrong:
            text = wrong.object.decode(errors="replace")
            errors = (f"the turn is not valid UTF-8 at byte {wrong.start}",)
        if forged:
            errors += ("the turn holds a role marker, which only the conversation's frame may",)
        parsed = self.read(text)
        if isinstance(parsed, Malformed):
            errors += parsed.errors
        return Malformed(parsed.message, errors) if errors else parsed

    def count(self, message: Message) -> int:
        """How many ids an assistant's message is, for a policy that gives none itself."""
        return len(self._codec.encode(self.write(message)))

    def _messages(self, messages: Sequence[Message]) -> tuple[int, ...]:
        markers = self._codec.markers
        ids: list[int] = []
        for message in messages:
            text = self.write(message) if message.role == "assistant" else message.content
            ids += [markers[message.role], *self._codec.encode(text), markers["end"]]
        return tuple(ids)
