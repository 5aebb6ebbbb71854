"""Which of the three outcomes a broken run has: the candidate's doing fails, ours is invalid, unclear runs again."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping

from guerdon.compiler.plan.expr import Value
from guerdon.runtime.contracts.trajectory import Outcome, Verdict
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify.evidence import clean


class Unclear(Exception):
    """A run broke and nothing says whether the candidate or the infrastructure did it."""

    def __init__(self, reason: str, evidence: str = "") -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, evidence


def failed(signals: Mapping[str, Value], reason: str, evidence: str | bytes = "") -> Verdict:
    """A fail with its kind's signals."""
    return Verdict(Outcome.FAIL, signals, clean(reason, 500), clean(evidence))


def invalid(reason: str, evidence: str | bytes = "") -> Verdict:
    """A verdict that is no score: no signals, the reason with its remedy."""
    return Verdict(Outcome.INVALID, {}, clean(reason, 500), clean(evidence))


async def settle(
    given: VerifyInput, attempt: Callable[[VerifyInput], Awaitable[Verdict]], lost: Mapping[str, Value]
) -> Verdict:
    """The verdict of an attempt; where that is Unclear, of a second one; then the oracle is the control.

    The oracle passes and the candidate broke its verification twice: a fail with the signals `lost`. The oracle breaks
    too, does not pass, or is not at hand: invalid.
    """
    try:
        return await attempt(given)
    except Unclear:
        pass
    try:
        return await attempt(given)
    except Unclear as again:
        unclear = again
    twice = f"the verification broke twice: {unclear.reason}"
    oracle = await given.control() if given.control is not None else None
    if oracle is None:
        return invalid(f"{twice}; no oracle to compare with: run `guerdon doctor`, then again", unclear.evidence)
    try:
        control = await attempt(dataclasses.replace(given, artefacts=oracle, control=None))
    except Unclear as broken:
        return invalid(f"{twice}; the oracle's breaks as well: {broken.reason}; run `guerdon doctor`", broken.evidence)
    if control.outcome is not Outcome.PASS:
        return invalid(f"{twice}; the oracle does not pass either ({control.reason}); run `guerdon lock`")
    return failed(lost, f"{twice}, while the oracle's passes", unclear.evidence)
