"""The evaluator of reward expressions against plain Python on random expressions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.compiler.plan.evaluate import EvaluationError, evaluate
from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, from_json, substitute, symbols, to_json

Env = dict[str, Fraction | bool]
Pair = tuple[Expr, Callable[[Env], object]]
"""An expression and what it means in Python."""

NUMBERS = ("x", "y")
TRUTHS = ("p", "q")


def leaf(name: str) -> Pair:
    return Symbol("signal", ("v", name)), lambda env: env[name]


def constant(value: Fraction | bool) -> Pair:
    return Const(value), lambda env: value


def both(op: str, function: Callable[..., object], *parts: Pair) -> Pair:
    return Apply(op, tuple(e for e, _ in parts)), lambda env: function(*(f(env) for _, f in parts))


def clamp(x: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """First up to the lower end, then down to the upper one, which wins where the ends cross."""
    lifted = low if x < low else x
    return high if lifted > high else lifted


def several(part: st.SearchStrategy[Pair]) -> st.SearchStrategy[list[Pair]]:
    return st.lists(part, min_size=1, max_size=3)


def numbers(depth: int) -> st.SearchStrategy[Pair]:
    leaves = st.one_of(st.sampled_from(NUMBERS).map(leaf), st.fractions(-9, 9, max_denominator=7).map(constant))
    if depth == 0:
        return leaves
    n, b = numbers(depth - 1), truths(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, c: both("+", lambda x, y: x + y, a, c), n, n),
        st.builds(lambda a, c: both("-", lambda x, y: x - y, a, c), n, n),
        st.builds(lambda a, c: both("*", lambda x, y: x * y, a, c), n, n),
        st.builds(lambda a, c: both("/", lambda x, y: x / y, a, c), n, n),
        st.builds(lambda a: both("neg", lambda x: -x, a), n),
        st.builds(lambda a: both("abs", abs, a), n),
        st.builds(lambda a, c, d: both("clamp", clamp, a, c, d), n, n, n),
        several(n).map(lambda ps: both("min", lambda *v: sorted(v)[0], *ps)),
        several(n).map(lambda ps: both("max", lambda *v: sorted(v)[-1], *ps)),
        several(n).map(lambda ps: both("sum", lambda *v: sum(v), *ps)),
        several(n).map(lambda ps: both("mean", lambda *v: sum(v) / len(v), *ps)),
        several(b).map(lambda ps: both("count", lambda *v: Fraction(list(v).count(True)), *ps)),
        st.builds(lambda c, a, o: (Apply("if", (c[0], a[0], o[0])), lambda env: a[1](env) if c[1](env) else o[1](env)),
                  b, n, n),
    )


def truths(depth: int) -> st.SearchStrategy[Pair]:
    leaves = st.one_of(st.sampled_from(TRUTHS).map(leaf), st.booleans().map(constant))
    if depth == 0:
        return leaves
    n, b = numbers(depth - 1), truths(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a: both("not", lambda x: not x, a), b),
        st.builds(lambda a, c: (Apply("and", (a[0], c[0])), lambda env: a[1](env) and c[1](env)), b, b),
        st.builds(lambda a, c: (Apply("or", (a[0], c[0])), lambda env: a[1](env) or c[1](env)), b, b),
        st.builds(lambda a, c: (Apply("implies", (a[0], c[0])), lambda env: not a[1](env) or c[1](env)), b, b),
        st.builds(lambda a, c: both("<", lambda x, y: x < y, a, c), n, n),
        st.builds(lambda a, c: both("<=", lambda x, y: x <= y, a, c), n, n),
        st.builds(lambda a, c: both(">", lambda x, y: x > y, a, c), n, n),
        st.builds(lambda a, c: both(">=", lambda x, y: x >= y, a, c), n, n),
        st.builds(lambda a, c: both("==", lambda x, y: x == y, a, c), n, n),
        st.builds(lambda a, c: both("!=", lambda x, y: x != y, a, c), b, b),
        several(b).map(lambda ps: both("any", lambda *v: any(v), *ps)),
        several(b).map(lambda ps: both("all", lambda *v: all(v), *ps)),
    )


value = st.fractions(-5, 5, max_denominator=6)
environments = st.fixed_dictionaries({**dict.fromkeys(NUMBERS, value), **dict.fromkeys(TRUTHS, st.booleans())})


@settings(deadline=None, max_examples=300)
@given(st.one_of(numbers(3), truths(3)), environments)
def test_every_expression_means_what_python_says(pair: Pair, env: Env) -> None:
    expr, meaning = pair
    given_ = {Symbol("signal", ("v", n)): v for n, v in env.items()}
    try:
        wanted = meaning(env)
    except ZeroDivisionError:
        with pytest.raises(EvaluationError, match="division by zero"):
            evaluate(expr, given_)
        return
    found = evaluate(expr, given_)
    assert found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
    assert evaluate(from_json(to_json(expr)), given_) == found
    assert evaluate(substitute(expr, {s: Const(v) for s, v in given_.items()}), {}) == found
    assert set(symbols(expr)) <= set(given_)


@pytest.mark.parametrize("expr", [
    Symbol("signal", ("v", "missing")),
    Apply("+", (Const(True), Const(Fraction(1)))),
    Apply("+", (Const(Fraction(1)),)),
    Apply("if", (Const(Fraction(1)), Const(Fraction(1)), Const(Fraction(1)))),
    Apply("if", (Const(True),)),
    Apply("implies", (Const(True),)),
    Apply("and", (Const(Fraction(1)), Const(True))),
    Apply("not", (Const(Fraction(0)),)),
    Apply("==", (Const(True), Const(Fraction(1)))),
    Apply("min", (Const(()),)),
    Apply("mean", ()),
    Apply("clamp", (Const(Fraction(1)), Const(Fraction(1)))),
    Apply("count", (Const(Fraction(1)),)),
    Apply("frobnicate", ()),
], ids=str)
def test_what_has_no_value_is_an_evaluation_error(expr: Expr) -> None:
    with pytest.raises(EvaluationError):
        evaluate(expr, {})


def test_and_or_and_if_look_at_no_more_than_they_need() -> None:
    zero, one = Const(Fraction(0)), Const(Fraction(1))
    bad = Apply(">", (Apply("/", (one, zero)), zero))
    assert evaluate(Apply("and", (Const(False), bad)), {}) is False
    assert evaluate(Apply("or", (Const(True), bad)), {}) is True
    assert evaluate(Apply("implies", (Const(False), bad)), {}) is True
    assert evaluate(Apply("if", (Const(True), one, Apply("/", (one, zero)))), {}) == 1
