"""Which way an expression moves when one symbol grows and all else stays: read off its structure."""

from __future__ import annotations

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, symbols
from guerdon.compiler.reward.domain import Box, Span, forward

Direction = int | None
"""1 rises (never falls), -1 falls, 0 does not move, None unknown. False counts as below true."""

_SAME = frozenset("+ sum mean min max and or any all count".split())


def direction(expr: Expr, symbol: Symbol, box: Box) -> Direction:
    """The direction of an expression in a symbol; sound for every value of everything else in the box."""
    if expr == symbol:
        return 1
    if isinstance(expr, Const | Symbol) or symbol not in symbols(expr):
        return 0
    parts = [direction(a, symbol, box) for a in expr.args]
    if expr.op in _SAME:
        return _together(*parts)
    match expr.op:
        case "neg" | "not":
            return _turned(parts[0])
        case "-" | ">" | ">=":
            return _together(parts[0], _turned(parts[1]))
        case "<" | "<=" | "implies":
            return _together(_turned(parts[0]), parts[1])
        case "clamp":
            return _together(*parts)
        case "*":
            return _product(expr, parts, box)
        case "/":
            return _scaled(parts[0], expr.args[1], box) if parts[1] == 0 else None
        case "if":
            return _branch(expr, parts, box)
    return None


def _together(*parts: Direction) -> Direction:
    moving = {p for p in parts if p != 0}
    return moving.pop() if len(moving) == 1 else None if moving else 0


def _turned(part: Direction) -> Direction:
    return None if part is None else -part


def _scaled(part: Direction, factor: Expr, box: Box) -> Direction:
    """The direction of `x * factor` (or `x / factor`) for a factor that does not move."""
    sign = _sign(factor, box)
    return None if part is None or sign is None else part * sign


def _sign(expr: Expr, box: Box) -> int | None:
    have = forward(expr, box)
    if isinstance(have, Span) and have.low is not None and have.low >= 0:
        return 1
    if isinstance(have, Span) and have.high is not None and have.high <= 0:
        return -1
    return None


def _product(expr: Apply, parts: list[Direction], box: Box) -> Direction:
    left, right = expr.args
    # The derivative of a product is the sum of both: each must point the same way, whatever the other factor is.
    return _together(_scaled(parts[0], right, box) if parts[0] != 0 else 0,
                     _scaled(parts[1], left, box) if parts[1] != 0 else 0)


def _branch(expr: Apply, parts: list[Direction], box: Box) -> Direction:
    _, then, otherwise = expr.args
    if parts[0] == 0:
        return _together(parts[1], parts[2])
    high, low = forward(then, box), forward(otherwise, box)
    if not isinstance(high, Span) or not isinstance(low, Span):
        return None
    if low.high is not None and high.low is not None and low.high <= high.low:
        return _together(parts[0], parts[1], parts[2])
    if high.high is not None and low.low is not None and high.high <= low.low:
        return _together(_turned(parts[0]), parts[1], parts[2])
    return None
