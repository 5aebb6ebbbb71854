"""Who acts: message-level policies (oracle, scripted, a served model) and token-level ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.contracts.trajectory import Message, Turn


class PolicyFault(Exception):
    """The policy's own infrastructure failed (a lost server): the episode is invalid, not a fail."""


class Episode(Protocol):
    """One episode's worth of a message-level policy."""

    async def act(self, messages: Sequence[Message]) -> Turn | None:
        """The next turn given all messages so far; None ends the episode without submitting."""
        ...


class MessagePolicy(Protocol):
    """A policy that speaks in messages."""

    @property
    def name(self) -> str: ...

    def start(self, tools: Sequence[ToolPlan], seed: int) -> Episode:
        """Begin an episode."""
        ...
