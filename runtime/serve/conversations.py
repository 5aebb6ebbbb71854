"""What was sampled in conversations that may go on: their ids, and the session that holds their cache."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.contracts.trajectory import Message

_TURNS = 4
"""Last turns of a session from which a conversation may go on, or be asked for again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes on: after `ids` come the messages from `at` on; nothing is known where `ids` is empty."""

    session: str
    ids: tuple[int, ...]
    at: int
    key: bytes
    """Of all messages of the request."""


class Conversations:
    """Known by their content: tools and messages up to a turn that was sampled here. The protocol sends text alone,
    but what was sampled was ids; those are gone on from, and not the text, which might be tokenised in another way.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: dict[bytes, tuple[str, tuple[int, ...]]] = {}
        self._keys: OrderedDict[str, list[bytes]] = OrderedDict()
        """Keys of each session; the session used last comes last."""
        self._busy: set[str] = set()
        self._made = 0

    def find(self, name: str, tools: Sequence[ToolPlan], messages: Sequence[Message]) -> Place:
        """The place of a request; `name` is the client's own for its session, or empty. Release it afterwards."""
        keys = list(_keys(name, tools, messages))
        at = max((i for i, message in enumerate(messages, 1) if message.role == "assistant"), default=0)
        session, ids = self._known.get(keys[at], ("", ())) if at else ("", ())
        if not ids:
            at, session = 0, f"named {name}" if name else ""
        if not session or session in self._busy:
            self._made += 1
            session = f"session {self._made}"
        self._busy.add(session)
        return Place(session, ids, at, keys[-1])

    def keep(self, place: Place, reply: Message, ids: tuple[int, ...]) -> None:
        """Remember a turn: `ids` are those of the whole conversation with it."""
        key = _after(place.key, reply)
        self._known[key] = (place.session, ids)
        keys = self._keys.setdefault(place.session, [])
        if key in keys:
            keys.remove(key)
        keys.append(key)
        self._keys.move_to_end(place.session)
        for old in keys[:-_TURNS]:
            self._drop(place.session, old)
        del keys[:-_TURNS]

    def release(self, place: Place) -> list[str]:
        """A request is done with; the sessions to forget now."""
        self._busy.discard(place.session)
        gone = [] if place.session in self._keys else [place.session]
        idle = [session for session in self._keys if session not in self._busy]
        for session in idle[: max(0, len(self._keys) - self._most)]:
            for key in self._keys.pop(session):
                self._drop(session, key)
            gone.append(session)
        return gone

    def _drop(self, session: str, key: bytes) -> None:
        if self._known.get(key, ("",))[0] == session:
            del self._known[key]


def _keys(name: str, tools: Sequence[ToolPlan], messages: Sequence[Message]) -> Iterator[bytes]:
    """One key a message, each of all messages up to it, and one of none."""
    opening = [name, [[tool.name, tool.description, tool.parameters] for tool in tools]]
    key = hashlib.sha256(json.dumps(opening, sort_keys=True).encode()).digest()
    yield key
    for message in messages:
        key = _after(key, message)
        yield key


def _after(key: bytes, message: Message) -> bytes:
    # Without the calls' ids: they are ours, and no part of what the model is shown.
    told = [message.role, message.content, [[call.name, call.arguments] for call in message.calls]]
    return hashlib.sha256(key + json.dumps(told).encode()).digest()
