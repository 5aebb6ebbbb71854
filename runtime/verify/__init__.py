"""Verifiers: one small file a kind, all under one harness; frozen artefacts in, a checked verdict out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from guerdon.runtime.contracts.trajectory import Verdict
from guerdon.runtime.contracts.verifier import Verifier, VerifyInput
from guerdon.runtime.verify.answer_kind import Answer
from guerdon.runtime.verify.program_kinds import Exec, Stdout
from guerdon.runtime.verify.pytest_kind import Pytest
from guerdon.runtime.verify.settle import invalid
from guerdon.runtime.verify.signals import checked

__all__ = ["KINDS", "verify"]

KINDS: Mapping[str, Verifier] = {"pytest": Pytest(), "exec": Exec(), "stdout": Stdout(), "answer": Answer()}
"""The kinds that run."""


async def verify(given: VerifyInput) -> Verdict:
    """Run a bound verifier on one frozen episode and check what it says against its declaration.

    `seconds` is wall time. Raises SandboxFault when no verification sandbox can be made or filled.
    """
    kind = KINDS.get(given.plan.kind)
    if kind is None:
        known = ", ".join(sorted(KINDS))
        return invalid(f"verifier {given.plan.name}: no kind `{given.plan.kind}` runs here; there are {known}")
    started = time.monotonic()
    try:
        verdict = checked(given.plan, await kind.run(given))
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        # A setting that the compiler let through, or a defect of a kind: never a score.
        verdict = invalid(f"verifier {given.plan.name} is defective: {type(error).__name__}: {error}; report it")
    return dataclasses.replace(verdict, seconds=time.monotonic() - started)
