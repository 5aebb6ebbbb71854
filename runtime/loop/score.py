"""Scoring a finished episode exactly: what the plan promised of signals and reward is asserted here again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from fractions import Fraction

from guerdon.compiler.plan.canonical import parse_rational, rational
from guerdon.compiler.plan.evaluate import EvaluationError, evaluate, number, truth
from guerdon.compiler.plan.expr import Expr, Symbol, Value
from guerdon.compiler.plan.schema import (
    InstancePlan,
    LimitsPlan,
    SignalPlan,
    TaskPlan,
    VerifierPlan,
)
from guerdon.runtime.contracts.trajectory import Counters, Outcome, Reward, Verdict

Env = dict[Symbol, Value]


class Defect(Exception):
    """A verdict or reward that breaks what the plan promised: the episode is invalid, never a score."""


def score(
    task: TaskPlan, instance: InstancePlan, counters: Counters, verdicts: Mapping[str, Verdict]
) -> Reward:
    """The reward of an episode whose verdicts are all valid.

    Everything is computed in rationals; only `value` is rounded, once. Raises Defect.
    """
    reward = task.reward
    env = environment(task, instance, counters, verdicts)
    try:
        terms = {term.name: number(term.weight, env) * _counted(term.expr, env) for term in reward.terms}
        env |= {Symbol("term", (name,)): value for name, value in terms.items()}
        total, solved = number(reward.total, env), truth(reward.solved, env)
    except EvaluationError as wrong:
        raise Defect(f"the reward {reward.name} has no value: {wrong}") from wrong
    low, high = parse_rational(reward.low), parse_rational(reward.high)
    if not low <= total <= high:
        raise Defect(f"the reward {reward.name} is {total}, outside its proved range {low} to {high}")
    return Reward(rational(total), float(total), {n: rational(v) for n, v in terms.items()}, solved)


def environment(
    task: TaskPlan, instance: InstancePlan, counters: Counters, verdicts: Mapping[str, Verdict]
) -> Env:
    """Every symbol that a reward may read, with its value (durations in milliseconds)."""
    env: Env = {}
    for name, verdict in verdicts.items():
        env |= {Symbol("signal", (name, signal)): value for signal, value in verdict.signals.items()}
    env |= {Symbol("trajectory", (name,)): value for name, value in _counters(counters)}
    env |= {Symbol("limit", (name,)): Fraction(value) for name, value in _limits(task.limits)}
    env |= {Symbol("row", (name,)): parse_rational(value) for name, value in instance.values.items()}
    for name, (value, _, _) in task.reward.weights.items():
        env[Symbol("weight", (name,))] = parse_rational(value)
    return env


def check_verdict(plan: VerifierPlan, verdict: Verdict) -> None:
    """Hold a verdict to its plan: every signal there, of its type, in its range, and every fact true.

    Raises Defect.
    """
    if verdict.outcome is Outcome.INVALID:
        return
    if set(verdict.signals) != set(plan.signals):
        raise Defect(
            f"the verifier {plan.name} gave the signals {sorted(verdict.signals)}, not {sorted(plan.signals)}"
        )
    for name, signal in plan.signals.items():
        problem = _outside(signal, verdict.signals[name])
        if problem:
            raise Defect(f"the signal {plan.name}.{name} {problem}")
    env: Env = {Symbol("signal", ("", name)): value for name, value in verdict.signals.items()}
    for fact in plan.facts:
        try:
            held = truth(fact, env)
        except EvaluationError as wrong:
            raise Defect(f"a fact of the verifier {plan.name} has no value: {wrong}") from wrong
        if not held:
            raise Defect(f"a fact of the verifier {plan.name} does not hold: {_shown(verdict.signals)}")


def _counted(expr: Expr, env: Env) -> Fraction:
    value = evaluate(expr, env)
    if isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, Fraction):
        return value
    raise EvaluationError(f"{value!r} is not a number")


def _counters(counters: Counters) -> Iterable[tuple[str, Value]]:
    for field in fields(counters):
        value = getattr(counters, field.name)
        yield field.name, value if isinstance(value, bool) else Fraction(value)
    yield "wall", Fraction(counters.wall_ms)


def _limits(limits: LimitsPlan) -> Iterable[tuple[str, int]]:
    yield "turns", limits.turns
    yield "wall", limits.wall_ms
    yield "wall_ms", limits.wall_ms
    if limits.tokens is not None:
        yield "tokens", limits.tokens


def _outside(signal: SignalPlan, value: Value) -> str | None:
    if signal.type == "bool":
        return None if isinstance(value, bool) else f"is {value!r}, not true or false"
    if isinstance(value, bool) or not isinstance(value, Fraction):
        return f"is {value!r}, not a number"
    if signal.type == "int" and value.denominator != 1:
        return f"is {value}, not a whole number"
    if signal.low is not None and value < parse_rational(signal.low):
        return f"is {value}, below {signal.low}"
    if signal.high is not None and value > parse_rational(signal.high):
        return f"is {value}, above {signal.high}"
    return None


def _shown(signals: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in signals.items())
