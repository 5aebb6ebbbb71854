"""Scoring a finished episode exactly: the range that was proved is asserted here again."""

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
    TaskPlan,
)
from guerdon.runtime.contracts.trajectory import Counters, Reward, Verdict

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
