"""The least or greatest value of a reward under assumptions: case split, then exact affine bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from guerdon.compiler.plan.evaluate import EvaluationError, evaluate
from guerdon.compiler.plan.evaluate import number as evaluate_number
from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, Value, symbols
from guerdon.compiler.reward.assume import assume, narrow, open_atoms
from guerdon.compiler.reward.domain import Box, Span, Truth, span, truth

MAX_CASES = 20_000
MAX_CORNERS = 256


class TooManyCases(Exception):
    """The case split was stopped: nothing is known then."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The bound of one side: `value` None means unbounded. `world` attains it, replayed by the evaluator."""

    value: Fraction | None
    world: Mapping[Symbol, Value] | None


@dataclass(frozen=True, slots=True)
class Worlds:
    """A set of trajectories: a box, facts that hold in each, and what else is assumed."""

    box: Box
    facts: tuple[Expr, ...]
    assumptions: tuple[Expr, ...] = ()

    def given(self, *assumptions: Expr) -> Worlds:
        """The trajectories of this set in which more holds."""
        return Worlds(self.box, self.facts, (*self.assumptions, *assumptions))

    @property
    def conditions(self) -> tuple[Expr, ...]:
        return (*self.facts, *self.assumptions)


def extreme(expr: Expr, worlds: Worlds, *, highest: bool) -> Extreme | None:
    """The greatest (or least) value of an expression; None if there is no such trajectory.

    Sound: no world lies beyond `value`. Raises TooManyCases or Unsupported.
    """
    best: Extreme | None = None
    for case in cases(expr, worlds):
        bound = _bound(expr, case, highest)
        if best is not None and best.value is None:
            return best
        unwitnessed = best is not None and bound == best.value and best.world is None
        if best is None or unwitnessed or _beyond(bound, best.value, highest):
            best = Extreme(bound, _corner(expr, case, worlds, bound, highest))
    return best


def cases(expr: Expr, worlds: Worlds) -> Iterator[Box]:
    """Boxes that together hold every world, in each of which all conditions and branches are decided."""
    count = 0
    start = narrow(worlds.box, worlds.conditions)
    pending = [start] if start is not None else []
    watched = (*worlds.conditions, expr)
    while pending:
        count += 1
        if count > MAX_CASES:
            raise TooManyCases
        box = pending.pop()
        atom = next(open_atoms(watched, box), None)
        if atom is None:
            if all(truth(c, box).yes for c in worlds.conditions):
                yield box
            continue
        for holds in (True, False):
            half = assume(box, atom, holds)
            half = narrow(half, worlds.conditions) if half is not None else None
            if half is not None and (half != box or _decided(atom, half)):
                pending.append(half)
            elif half is not None:
                # The split decided nothing (two real symbols compared): keep the undecided box as a whole.
                yield half
                break


def _decided(atom: Expr, box: Box) -> bool:
    known = truth(atom, box)
    return known.no != known.yes


def _beyond(bound: Fraction | None, best: Fraction | None, highest: bool) -> bool:
    if bound is None:
        return best is not None
    return best is not None and (bound > best if highest else bound < best)


@dataclass(frozen=True, slots=True)
class _Affine:
    """`constant + sum of coefficient * part`, each part a symbol or a term that is not affine."""

    constant: Fraction
    parts: Mapping[Expr, Fraction]


def _affine(expr: Expr, box: Box) -> _Affine:
    if isinstance(expr, Const) and isinstance(expr.value, Fraction):
        return _Affine(expr.value, {})
    if isinstance(expr, Apply):
        match expr.op:
            case "+" | "sum":
                return _sum([(Fraction(1), _affine(a, box)) for a in expr.args])
            case "-":
                left, right = (_affine(a, box) for a in expr.args)
                return _sum([(Fraction(1), left), (Fraction(-1), right)])
            case "neg":
                return _sum([(Fraction(-1), _affine(expr.args[0], box))])
            case "*":
                return _product(expr, box)
            case "/":
                bottom = span(expr.args[1], box)
                if bottom.low is not None and bottom.low == bottom.high and bottom.low != 0:
                    return _sum([(1 / bottom.low, _affine(expr.args[0], box))])
            case "if":
                known = truth(expr.args[0], box)
                if known.no != known.yes:
                    return _affine(expr.args[1] if known.yes else expr.args[2], box)
    have = span(expr, box)
    if have.low is not None and have.low == have.high:
        return _Affine(have.low, {})
    return _Affine(Fraction(0), {expr: Fraction(1)})


def _sum(scaled: list[tuple[Fraction, _Affine]]) -> _Affine:
    constant, parts = Fraction(0), dict[Expr, Fraction]()
    for factor, one in scaled:
        constant += factor * one.constant
        for part, coefficient in one.parts.items():
            parts[part] = parts.get(part, Fraction(0)) + factor * coefficient
    return _Affine(constant, {p: c for p, c in parts.items() if c != 0})


def _product(expr: Apply, box: Box) -> _Affine:
    left, right = (_affine(a, box) for a in expr.args)
    if not left.parts:
        return _sum([(left.constant, right)])
    if not right.parts:
        return _sum([(right.constant, left)])
    return _Affine(Fraction(0), {expr: Fraction(1)})


def _bound(expr: Expr, box: Box, highest: bool) -> Fraction | None:
    form = _affine(expr, box)
    total = form.constant
    for part, coefficient in form.parts.items():
        have = span(part, box)
        end = have.high if (coefficient > 0) == highest else have.low
        if end is None:
            return None
        total += coefficient * end
    return total


def _corner(expr: Expr, box: Box, worlds: Worlds, bound: Fraction | None,
            highest: bool) -> Mapping[Symbol, Value] | None:
    """A corner of the box at which the evaluator gives the bound and every condition holds."""
    if bound is None:
        return None
    form = _affine(expr, box)
    fixed: dict[Symbol, Value] = {}
    for part, coefficient in form.parts.items():
        if isinstance(part, Symbol):
            have = box[part]
            assert isinstance(have, Span)
            end = have.high if (coefficient > 0) == highest else have.low
            if end is not None:
                fixed[part] = end
    for world in _corners(box, fixed, (expr, *worlds.conditions)):
        if replay(expr, worlds, world) == bound:
            return world
    return None


def _corners(box: Box, fixed: Mapping[Symbol, Value],
             exprs: tuple[Expr, ...]) -> Iterator[dict[Symbol, Value]]:
    loose = [s for s in dict.fromkeys(s for e in exprs for s in symbols(e)) if s not in fixed]
    choices = [_ends(box[s]) for s in loose]
    for picked in itertools.islice(itertools.product(*choices), MAX_CORNERS):
        yield {**fixed, **dict(zip(loose, picked, strict=True))}


def _ends(have: Span | Truth) -> tuple[Value, ...]:
    if isinstance(have, Truth):
        return tuple(v for v, possible in ((False, have.no), (True, have.yes)) if possible)
    ends = tuple(dict.fromkeys(e for e in (have.low, have.high) if e is not None))
    return ends or (Fraction(0),)


def replay(expr: Expr, worlds: Worlds, world: Mapping[Symbol, Value]) -> Fraction | None:
    """What the run-time evaluator makes of a world; None if a condition fails in it."""
    try:
        if all(evaluate(c, world) is True for c in worlds.conditions):
            return evaluate_number(expr, world)
    except EvaluationError:
        pass
    return None

