"""Narrowing a box by what is assumed to hold, and finding what is still open in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol
from guerdon.compiler.reward.domain import Box, Remembering, Span, Truth, forward, span, truth

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_ROUNDS = 20


def narrow(box: Box, assumptions: Iterable[Expr]) -> Box | None:
    """The box in which all assumptions may hold; None if there is none."""
    wanted = tuple(assumptions)
    box = box if isinstance(box, Remembering) else Remembering(box)
    for _ in range(_ROUNDS):
        before = box
        for assumption in wanted:
            after = assume(box, assumption, True)
            if after is None:
                return None
            box = after
        if box == before:
            break
    return box


def assume(box: Box, expr: Expr, holds: bool) -> Box | None:
    """The part of the box in which an expression has a truth value; None if empty."""
    known = truth(expr, box)
    if not (known.yes if holds else known.no):
        return None
    if isinstance(expr, Symbol):
        return _having(box, expr, Truth(not holds, holds))
    if isinstance(expr, Apply):
        return _assume_apply(box, expr, holds)
    return box


def _assume_apply(box: Box, expr: Apply, holds: bool) -> Box | None:
    match expr.op:
        case "not":
            return assume(box, expr.args[0], not holds)
        case "and" | "all":
            return _each(box, expr.args, True) if holds else _last_open(box, expr.args, True)
        case "or" | "any":
            return _last_open(box, expr.args, False) if holds else _each(box, expr.args, False)
        case "implies":
            return assume(box, Apply("or", (Apply("not", expr.args[:1]), expr.args[1])), holds)
        case "if":
            return _assume_if(box, expr, holds)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return _assume_comparison(box, expr, holds)
        case _:
            return box


def _each(box: Box, parts: tuple[Expr, ...], value: bool) -> Box | None:
    result: Box | None = box
    for part in parts:
        if result is None:
            return None
        result = assume(result, part, value)
    return result


def _last_open(box: Box, parts: tuple[Expr, ...], neutral: bool) -> Box | None:
    """Not all parts have the `neutral` value: if only one can differ, it does."""
    able = [p for p in parts if (truth(p, box).no if neutral else truth(p, box).yes)]
    if not able:
        return None
    return assume(box, able[0], not neutral) if len(able) == 1 else box


def _assume_if(box: Box, expr: Apply, holds: bool) -> Box | None:
    condition, then, otherwise = expr.args
    known = truth(condition, box)
    if not known.no:
        return assume(box, then, holds)
    if not known.yes:
        return assume(box, otherwise, holds)
    return box


def _assume_comparison(box: Box, expr: Apply, holds: bool) -> Box | None:
    left, right = expr.args
    op = expr.op if holds else _NEGATED[expr.op]
    if isinstance(forward(left, box), Truth):
        return _assume_equal_truths(box, left, right, op == "==")
    result: Box | None = box
    if isinstance(left, Symbol):
        result = _bound(box, left, op, span(right, box))
    if result is not None and isinstance(right, Symbol):
        result = _bound(result, right, _FLIPPED[op], span(left, result))
    return result


def _assume_equal_truths(box: Box, left: Expr, right: Expr, same: bool) -> Box | None:
    for one, other in ((left, right), (right, left)):
        known = truth(one, box)
        if known.no != known.yes:
            return assume(box, other, known.yes == same)
    return box


def _bound(box: Box, symbol: Symbol, op: str, by: Span) -> Box | None:
    have = box[symbol]
    assert isinstance(have, Span)
    low, high = have.low, have.high
    if op in ("<", "<=", "==") and by.high is not None:
        limit = _below(by.high, have.whole, op == "<")
        high = limit if high is None else min(high, limit)
    if op in (">", ">=", "==") and by.low is not None:
        limit = -_below(-by.low, have.whole, op == ">")
        low = limit if low is None else max(low, limit)
    if op == "!=" and have.whole and by.low is not None and by.low == by.high:
        low = low + 1 if low == by.low and low is not None else low
        high = high - 1 if high == by.low and high is not None else high
    if low is not None and high is not None:
        open_end = (op == "<" and by.high == low) or (op == ">" and by.low == high)
        if low > high or (low == high and open_end):
            return None
    return _having(box, symbol, Span(low, high, have.whole))


def _having(box: Box, symbol: Symbol, value: Span | Truth) -> Box:
    if box[symbol] == value:
        return box
    return (box if isinstance(box, Remembering) else Remembering(box)).having(symbol, value)


def _below(limit: Fraction, whole: bool, strict: bool) -> Fraction:
    """The greatest value at (or, if strict and whole, under) a limit."""
    if not whole:
        return limit
    return Fraction(math.ceil(limit) - 1 if strict else math.floor(limit))


def open_atoms(exprs: Iterable[Expr], box: Box) -> Iterator[Expr]:
    """Undecided boolean symbols and comparisons, in order of appearance: what a case split decides."""
    for expr in exprs:
        yield from _atoms(expr, box)


def _atoms(expr: Expr, box: Box) -> Iterator[Expr]:
    if isinstance(expr, Const):
        return
    known = forward(expr, box)
    if isinstance(expr, Symbol):
        if known == Truth(True, True):
            yield expr
        return
    if isinstance(known, Truth) and not (known.no and known.yes):
        return
    if expr.op in _NEGATED and isinstance(known, Truth) and not isinstance(forward(expr.args[0], box), Truth):
        yield expr
        return
    for arg in expr.args:
        yield from _atoms(arg, box)
