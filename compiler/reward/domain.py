"""What each symbol may be: a box of intervals and possible truth values, narrowed by assumptions.

Everything here over-approximates: a box may hold worlds that cannot occur, never the reverse. A proof on the
box is a proof; a counter-example must be found as a world and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers from `low` to `high` (None = unbounded); `whole` if only integers."""

    low: Fraction | None
    high: Fraction | None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """Which truth values are possible."""

    no: bool
    yes: bool


Box = Mapping[Symbol, Span | Truth]


class Remembering(dict[Symbol, Span | Truth]):
    """A box that is never changed once made, and so remembers what `forward` found in it."""

    __slots__ = ("memo",)

    def __init__(self, box: Box) -> None:
        super().__init__(box)
        self.memo: dict[int, tuple[Apply, Span | Truth]] = {}

    def having(self, symbol: Symbol, value: Span | Truth) -> Remembering:
        """A box in which one symbol is narrower."""
        narrower = Remembering(self)
        narrower[symbol] = value
        return narrower


ANY = Span(None, None)


class Unsupported(Exception):
    """The expression uses something that intervals do not cover (lists, strings)."""


def forward(expr: Expr, box: Box) -> Span | Truth:
    """An interval (or set of truth values) that holds every value of the expression in the box."""
    if isinstance(expr, Const):
        if isinstance(expr.value, bool):
            return Truth(not expr.value, expr.value)
        if isinstance(expr.value, Fraction):
            return Span(expr.value, expr.value, expr.value.denominator == 1)
        raise Unsupported(f"{expr.value!r} in arithmetic")
    if isinstance(expr, Symbol):
        return box[expr]
    if isinstance(box, Remembering):
        known = box.memo.get(id(expr))
        if known is None:
            # The expression is kept beside its result, so that its id stays its own.
            known = box.memo[id(expr)] = (expr, _apply(expr, box))
        return known[1]
    return _apply(expr, box)


def _apply(expr: Apply, box: Box) -> Span | Truth:
    rule = _RULES.get(expr.op)
    if rule is None:
        raise Unsupported(f"`{expr.op}`")
    return rule(expr, box)


def span(expr: Expr, box: Box) -> Span:
    """`forward` of a number."""
    result = forward(expr, box)
    if isinstance(result, Truth):
        raise Unsupported("a truth value in arithmetic")
    return result


def truth(expr: Expr, box: Box) -> Truth:
    """`forward` of a boolean."""
    result = forward(expr, box)
    if isinstance(result, Span):
        raise Unsupported("a number as a condition")
    return result


def _add(a: Span, b: Span) -> Span:
    return Span(_plus(a.low, b.low), _plus(a.high, b.high), a.whole and b.whole)


def _plus(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    return None if a is None or b is None else a + b


def _neg(a: Span) -> Span:
    return Span(None if a.high is None else -a.high, None if a.low is None else -a.low, a.whole)


def _times(a: Span, b: Span) -> Span:
    if any(s.low == 0 == s.high for s in (a, b)):
        return Span(Fraction(0), Fraction(0), True)
    ends = (a.low, a.high, b.low, b.high)
    if any(e is None for e in ends):
        return _times_unbounded(a, b)
    products = [x * y for x in (a.low, a.high) for y in (b.low, b.high) if x is not None and y is not None]
    return Span(min(products), max(products), a.whole and b.whole)


def _times_unbounded(a: Span, b: Span) -> Span:
    nonneg = [s.low is not None and s.low >= 0 for s in (a, b)]
    if all(nonneg) and a.low is not None and b.low is not None:
        return Span(a.low * b.low, None)
    return ANY


def _divide(a: Span, b: Span) -> Span:
    if b.low is None or b.high is None or b.low <= 0 <= b.high:
        positive = b.low is not None and b.low > 0
        if positive and b.low is not None and a.low is not None and a.high is not None:
            return _times(a, Span(Fraction(0), 1 / b.low))
        return ANY
    result = _times(a, Span(1 / b.high, 1 / b.low))
    return Span(result.low, result.high)


def _lowest(values: Iterable[Fraction | None]) -> Fraction | None:
    """The least of lower ends; None (minus infinity) if one is unbounded."""
    ends = list(values)
    return None if any(e is None for e in ends) else min(e for e in ends if e is not None)


def _highest(values: Iterable[Fraction | None]) -> Fraction | None:
    ends = list(values)
    return None if any(e is None for e in ends) else max(e for e in ends if e is not None)


def _min(spans: list[Span]) -> Span:
    bounded = [s.high for s in spans if s.high is not None]
    return Span(_lowest(s.low for s in spans), min(bounded) if bounded else None, all(s.whole for s in spans))


def _max(spans: list[Span]) -> Span:
    bounded = [s.low for s in spans if s.low is not None]
    low = max(bounded) if bounded else None
    return Span(low, _highest(s.high for s in spans), all(s.whole for s in spans))


def _arith(expr: Apply, box: Box) -> Span:
    parts = [span(a, box) for a in expr.args]
    match expr.op:
        case "+" | "sum":
            total = Span(Fraction(0), Fraction(0), True)
            for part in parts:
                total = _add(total, part)
            return total
        case "-":
            return _add(parts[0], _neg(parts[1]))
        case "*":
            return _times(parts[0], parts[1])
        case "/":
            return _divide(parts[0], parts[1])
        case "neg":
            return _neg(parts[0])
        case "min":
            return _min(parts)
        case "max":
            return _max(parts)
        case "abs":
            return _max([parts[0], _neg(parts[0])]) if not _crosses(parts[0]) else Span(
                Fraction(0), _max([parts[0], _neg(parts[0])]).high, parts[0].whole)
        case "clamp":
            return _min([_max([parts[0], parts[1]]), parts[2]])
        case _:
            total = _arith(Apply("+", expr.args), box)
            return _divide(total, Span(Fraction(len(parts)), Fraction(len(parts))))


def _crosses(a: Span) -> bool:
    return (a.low is None or a.low <= 0) and (a.high is None or a.high >= 0)


def _compare(expr: Apply, box: Box) -> Truth:
    left, right = expr.args
    if isinstance(forward(left, box), Truth):
        return _compare_truths(expr.op, truth(left, box), truth(right, box))
    a, b = span(left, box), span(right, box)
    match expr.op:
        case "<":
            return _less(a, b, strict=True)
        case "<=":
            return _less(a, b, strict=False)
        case ">":
            return _less(b, a, strict=True)
        case ">=":
            return _less(b, a, strict=False)
        case _:
            apart = _less(a, b, strict=True).no is False or _less(b, a, strict=True).no is False
            point = a.low is not None and a.low == a.high == b.low == b.high
            equal = Truth(not point, not apart)
            return equal if expr.op == "==" else Truth(equal.yes, equal.no)


def _compare_truths(op: str, a: Truth, b: Truth) -> Truth:
    same = Truth((a.no and b.yes) or (a.yes and b.no), (a.no and b.no) or (a.yes and b.yes))
    return same if op == "==" else Truth(same.yes, same.no)


def _less(a: Span, b: Span, *, strict: bool) -> Truth:
    """Whether a < b (or a <= b) can fail and can hold."""
    never_fails = a.high is not None and b.low is not None and (a.high < b.low if strict else a.high <= b.low)
    never_holds = a.low is not None and b.high is not None and (a.low >= b.high if strict else a.low > b.high)
    return Truth(not never_fails, not never_holds)


def _logic(expr: Apply, box: Box) -> Truth:
    parts = [truth(a, box) for a in expr.args]
    match expr.op:
        case "not":
            return Truth(parts[0].yes, parts[0].no)
        case "and" | "all":
            return Truth(any(p.no for p in parts), all(p.yes for p in parts))
        case "or" | "any":
            return Truth(all(p.no for p in parts), any(p.yes for p in parts))
        case _:
            return Truth(parts[0].yes and parts[1].no, parts[0].no or parts[1].yes)


def _if(expr: Apply, box: Box) -> Span | Truth:
    condition = truth(expr.args[0], box)
    branches = [forward(a, box) for a, possible in
                ((expr.args[1], condition.yes), (expr.args[2], condition.no)) if possible]
    if len(branches) == 1:
        return branches[0]
    a, b = branches
    if isinstance(a, Truth) and isinstance(b, Truth):
        return Truth(a.no or b.no, a.yes or b.yes)
    if isinstance(a, Span) and isinstance(b, Span):
        return Span(_lowest((a.low, b.low)), _highest((a.high, b.high)), a.whole and b.whole)
    raise Unsupported("branches of different kinds")


def _count(expr: Apply, box: Box) -> Span:
    parts = [truth(a, box) for a in expr.args]
    return Span(Fraction(sum(not p.no for p in parts)), Fraction(sum(p.yes for p in parts)), True)


_RULES: Mapping[str, Callable[[Apply, Box], Span | Truth]] = {
    **{op: _arith for op in "+ - * / neg min max abs clamp sum mean".split()},
    **{op: _compare for op in "== != < <= > >=".split()},
    **{op: _logic for op in "not and or implies all any".split()},
    "if": _if, "count": _count,
}
