"""The one evaluator of reward expressions: exact rationals, shared by proofs and the run time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, Value


class EvaluationError(Exception):
    """An expression has no value here: an unknown symbol, a zero denominator, a wrong kind of operand."""


def evaluate(expr: Expr, env: Mapping[Symbol, Value]) -> Value:
    """The value of an expression, exactly; raises EvaluationError.

    `and`, `or`, `implies` and `if` look at no more operands than they need.
    """
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Symbol):
        try:
            return env[expr]
        except KeyError:
            raise EvaluationError(f"no value for {expr}") from None
    lazy = _LAZY.get(expr.op)
    if lazy is not None:
        return lazy(expr, env)
    return apply(expr.op, tuple(evaluate(a, env) for a in expr.args))


def number(expr: Expr, env: Mapping[Symbol, Value]) -> Fraction:
    """The value of a numeric expression; raises EvaluationError if it is none."""
    return _number(evaluate(expr, env))


def truth(expr: Expr, env: Mapping[Symbol, Value]) -> bool:
    """The value of a boolean expression; raises EvaluationError if it is none."""
    return _bool(evaluate(expr, env))


def apply(op: str, args: tuple[Value, ...]) -> Value:
    """One strict operator on values; raises EvaluationError."""
    if op in _ARITHMETIC:
        return _ARITHMETIC[op](*map(_number, _arity(op, args, 2)))
    if op in _ORDER:
        return _ORDER[op](*map(_number, _arity(op, args, 2)))
    if op in ("==", "!="):
        return _equal(*_arity(op, args, 2)) == (op == "==")
    if op == "/":
        top, bottom = map(_number, _arity(op, args, 2))
        if bottom == 0:
            raise EvaluationError("division by zero")
        return top / bottom
    if op in _FOLDS:
        return _FOLDS[op](args)
    raise EvaluationError(f"unknown operator {op!r}")


def _arity(op: str, args: tuple[Value, ...], count: int) -> tuple[Value, ...]:
    if len(args) != count:
        raise EvaluationError(f"{op} takes {count} operands, not {len(args)}")
    return args


def _number(value: Value) -> Fraction:
    if isinstance(value, Fraction):
        return value
    raise EvaluationError(f"{value!r} is not a number")


def _bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise EvaluationError(f"{value!r} is not true or false")


def _equal(left: Value, right: Value) -> bool:
    if type(left) is not type(right):
        raise EvaluationError(f"{left!r} and {right!r} are of different kinds")
    return left == right


def _members(args: tuple[Value, ...]) -> tuple[Value, ...]:
    """Folds take one list or the members themselves."""
    if len(args) == 1 and isinstance(args[0], tuple):
        return args[0]
    return args


def _some(args: tuple[Value, ...], name: str) -> tuple[Fraction, ...]:
    values = tuple(_number(v) for v in _members(args))
    if not values:
        raise EvaluationError(f"{name} of nothing")
    return values


def _clamp(args: tuple[Value, ...]) -> Fraction:
    value, low, high = map(_number, _arity("clamp", args, 3))
    return min(max(value, low), high)


def _mean(args: tuple[Value, ...]) -> Fraction:
    values = _some(args, "mean")
    return sum(values, Fraction(0)) / len(values)


_ARITHMETIC: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}
_ORDER: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}
_FOLDS: dict[str, Callable[[tuple[Value, ...]], Value]] = {
    "neg": lambda a: -_number(_arity("neg", a, 1)[0]),
    "not": lambda a: not _bool(_arity("not", a, 1)[0]),
    "abs": lambda a: abs(_number(_arity("abs", a, 1)[0])),
    "min": lambda a: min(_some(a, "min")),
    "max": lambda a: max(_some(a, "max")),
    "clamp": _clamp,
    "sum": lambda a: sum((_number(v) for v in _members(a)), Fraction(0)),
    "mean": _mean,
    "any": lambda a: any([_bool(v) for v in _members(a)]),
    "all": lambda a: all([_bool(v) for v in _members(a)]),
    "count": lambda a: Fraction(sum(_bool(v) for v in _members(a))),
}


def _and(expr: Apply, env: Mapping[Symbol, Value]) -> bool:
    return all(truth(a, env) for a in expr.args)


def _or(expr: Apply, env: Mapping[Symbol, Value]) -> bool:
    return any(truth(a, env) for a in expr.args)


def _implies(expr: Apply, env: Mapping[Symbol, Value]) -> bool:
    if len(expr.args) != 2:
        raise EvaluationError("implies takes 2 operands")
    return not truth(expr.args[0], env) or truth(expr.args[1], env)


def _if(expr: Apply, env: Mapping[Symbol, Value]) -> Value:
    if len(expr.args) != 3:
        raise EvaluationError("if takes 3 operands")
    return evaluate(expr.args[1] if truth(expr.args[0], env) else expr.args[2], env)


_LAZY: dict[str, Callable[[Apply, Mapping[Symbol, Value]], Value]] = {
    "and": _and, "or": _or, "implies": _implies, "if": _if,
}
