"""Who acts: message-level policies (oracle, scripted, a served model) and token-level ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from guerdon.compiler.plan.schema import EnvironmentPlan, InstancePlan, ToolPlan
from guerdon.runtime.contracts.store import AssetReader
from guerdon.runtime.contracts.trajectory import Message, Turn


class PolicyFault(Exception):
    """The policy's own infrastructure failed (a lost server): the episode is invalid, not a fail."""


class PolicyDown(PolicyFault):
    """The policy can act in no episode (a refused key, no such model, a spent budget): the run stops with this line."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a policy may be asked to act on. A model looks at `tools` only; demonstrations read the rest."""

    instance: InstancePlan
    tools: tuple[ToolPlan, ...]
    environment: EnvironmentPlan | None
    assets: AssetReader


class Episode(Protocol):
    """One episode's worth of a policy."""

    @property
    def timed(self) -> bool:
        """Whether the time that `act` takes counts against the task's wall limit. It does not where the policy
        waits for other episodes: then the limit is for what the agent does, and no result hangs on the machine."""
        return True

    def end(self) -> None:
        """The rollout is over, however it ended: let go of what is kept for it."""
        return None

    async def act(self, messages: Sequence[Message]) -> Turn | None:
        """The next turn given all messages so far; None ends the episode without submitting."""
        ...


class MessagePolicy(Protocol):
    """A policy that speaks in messages."""

    @property
    def name(self) -> str: ...

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        """The identities under which episodes are made here: mostly the policy's name alone, one for each
        exploit of the pack, none where the policy has nothing to do (an attack on code where there is none).
        Raises AssetFault."""
        ...

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        """Begin an episode of one variant. Raises AssetFault, PolicyFault."""
        ...
