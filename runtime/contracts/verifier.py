"""What a verifier is: artefacts and parameters in, a typed verdict out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from guerdon.compiler.plan.schema import VerifierPlan
from guerdon.runtime.contracts.sandbox import Artefacts, PutFile, Sandbox
from guerdon.runtime.contracts.trajectory import Verdict


@dataclass(frozen=True, slots=True)
class VerifyInput:
    """All that a verifier may know of an episode.

    `environment` are the files the sandbox began with, `hidden` those the agent never sees (absolute
    paths below `/grader`), `open_sandbox` makes the fresh verification sandbox from the pinned image (role
    `verify`); the verifier removes it. `control` makes the oracle's artefacts (None where a row has no solution):
    asked only to settle whether a run that ended unclearly was the candidate's doing.
    """

    plan: VerifierPlan
    workdir: str
    artefacts: Artefacts
    environment: tuple[PutFile, ...]
    hidden: tuple[PutFile, ...]
    answer: str | None
    submitted: bool
    open_sandbox: Callable[[], Awaitable[Sandbox]]
    control: Callable[[], Awaitable[Artefacts | None]] | None = None


class Verifier(Protocol):
    """One verifier kind. Raises SandboxFault when the infrastructure fails: the caller makes that invalid."""

    async def run(self, given: VerifyInput) -> Verdict:
        """Verify one frozen episode."""
        ...
