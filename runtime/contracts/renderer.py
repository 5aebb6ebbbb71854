"""How messages become token ids and token ids become actions, without ever re-tokenising what was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.contracts.trajectory import Message


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy's text asks for: words and calls (arguments are raw JSON text, not yet checked)."""

    message: Message


@dataclass(frozen=True, slots=True)
class Malformed:
    """A text in which something looked like a call and was none: each error is written for the model to read.

    `message` keeps the calls of the same turn that were well formed.
    """

    message: Message
    errors: tuple[str, ...]


class Renderer(Protocol):
    """The token side of the tool protocol; `extend` keeps every id before it (prefix-preserving)."""

    @property
    def stop(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        ...

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text of ids as bytes (a character may be spread over several ids); markers have none."""
        ...

    def start(self, messages: Sequence[Message], tools: Sequence[ToolPlan]) -> tuple[int, ...]:
        """The ids of a conversation's opening, up to where the policy shall go on."""
        ...

    def extend(self, ids: Sequence[int], observation: Sequence[Message]) -> tuple[int, ...]:
        """`ids` (which end with what the policy sampled) followed by the observation's ids."""
        ...

    def turn(self, message: Message) -> tuple[int, ...]:
        """The ids of an assistant's turn as a policy would sample them, the end among them (for demonstrations).
        Raises ValueError for a message that could not be read back."""
        ...

    def parse(self, ids: Sequence[int]) -> Action | Malformed:
        """What the sampled ids of one turn ask for."""
        ...


class ToolText(Protocol):
    """Tool calls written as text, for a served model whose server knows nothing of tools."""

    def instructions(self, tools: Sequence[ToolPlan]) -> str:
        """What tells a model of its tools; empty where it has none."""
        ...

    def write(self, message: Message) -> str:
        """An assistant's message, calls and all, as one text."""
        ...

    def read(self, text: str) -> Action | Malformed:
        """What an assistant's text asks for."""
        ...
