"""The last gate of a verdict: declared signals, their types and ranges, and the facts over them."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from guerdon.compiler.plan.evaluate import EvaluationError, evaluate
from guerdon.compiler.plan.expr import Symbol, Value
from guerdon.compiler.plan.schema import SignalPlan, VerifierPlan
from guerdon.runtime.contracts.trajectory import Outcome, Verdict
from guerdon.runtime.verify.settle import invalid


def checked(plan: VerifierPlan, verdict: Verdict) -> Verdict:
    """The verdict, or an invalid one that names the signal or fact that is broken: a defect, never a score."""
    if verdict.outcome is Outcome.INVALID:
        return verdict
    for name, declared in plan.signals.items():
        wrong = _wrong(name, declared, verdict.signals.get(name))
        if wrong:
            return invalid(f"verifier {plan.name}: {wrong}; mend the signal's declaration or the verifier")
    broken = _broken_fact(plan, verdict)
    if broken:
        return invalid(f"verifier {plan.name}: {broken}; mend the fact or the verifier")
    signals = {name: verdict.signals[name] for name in plan.signals} if plan.signals else verdict.signals
    return dataclasses.replace(verdict, signals=signals)


def _wrong(name: str, declared: SignalPlan, value: Value | None) -> str:
    if value is None:
        return f"signal {name} is missing"
    if declared.type == "bool":
        return "" if isinstance(value, bool) else f"signal {name} is no bool: {value!r}"
    if isinstance(value, bool) or not isinstance(value, Fraction):
        return f"signal {name} is no number: {value!r}"
    if declared.type == "int" and value.denominator != 1:
        return f"signal {name} = {value} is no whole number"
    if declared.low is not None and value < Fraction(declared.low):
        return f"signal {name} = {value} is below its range {declared.low}..{declared.high}"
    if declared.high is not None and value > Fraction(declared.high):
        return f"signal {name} = {value} is above its range {declared.low}..{declared.high}"
    return ""


def _broken_fact(plan: VerifierPlan, verdict: Verdict) -> str:
    if not plan.facts:
        return ""
    env = {Symbol("signal", ("", name)): value for name, value in verdict.signals.items()}
    for index, fact in enumerate(plan.facts, 1):
        try:
            holds = evaluate(fact, env)
        except EvaluationError as error:
            return f"fact {index} cannot be evaluated: {error}"
        if holds is not True:
            told = ", ".join(f"{n} = {v}" for n, v in sorted(verdict.signals.items()))
            return f"fact {index} does not hold: {told}"
    return ""
