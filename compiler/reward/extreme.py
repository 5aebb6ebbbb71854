"""The least or greatest value of a reward under assumptions: case split, then exact affine bounds."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from guerdon.compiler.plan.evaluate import EvaluationError, evaluate
from guerdon.compiler.plan.evaluate import number as evaluate_number
from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, Value, symbols
from guerdon.compiler.reward.assume import assume, narrow, open_atoms
from guerdon.compiler.reward.domain import Box, Span, Truth, span, truth

ZERO = Fraction(0)
MAX_CASES = 5_000
MAX_CORNERS = 256
MAX_SEARCHED = 16
"""Cases in which a counter-example is looked for where the bounds do not decide."""


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
    worlds = relevant(expr, worlds)
    best: Extreme | None = None
    for bound, box in _leaves(expr, worlds, highest):
        if best is not None and bound != best.value:
            break
        best = Extreme(bound, _corner(expr, box, worlds, bound, highest))
        if best.world is not None or bound is None:
            break
    return best


def attained(expr: Expr, worlds: Worlds, *, highest: bool) -> Extreme | None:
    """The farthest value found at a corner of some case: no bound, but a world that exists; None if none was found.

    Raises Unsupported.
    """
    worlds = relevant(expr, worlds)
    best: Extreme | None = None
    try:
        for _, box in itertools.islice(_leaves(expr, worlds, highest), MAX_SEARCHED):
            for world in _corners(box, {}, (expr, *worlds.conditions)):
                value = replay(expr, worlds, world)
                if value is not None and (best is None or best.value is None or (
                        value > best.value if highest else value < best.value)):
                    best = Extreme(value, world)
    except TooManyCases:
        pass
    return best


def is_empty(worlds: Worlds) -> bool:
    """Whether intervals show that no world meets all conditions. Raises TooManyCases or Unsupported."""
    return next(_leaves(Const(ZERO), worlds, True), None) is None


def relevant(expr: Expr, worlds: Worlds) -> Worlds:
    """The same set without facts that share no symbol, not even by way of other facts, with the question.

    Facts alone can always hold together, so what has nothing to do with the question changes no bound.
    """
    reached = {s for e in (expr, *worlds.assumptions) for s in symbols(e)}
    left = [(f, set(symbols(f))) for f in worlds.facts]
    kept: list[Expr] = []
    while True:
        near = [(f, s) for f, s in left if s & reached]
        if not near:
            return Worlds(worlds.box, tuple(f for f in worlds.facts if f in kept), worlds.assumptions)
        kept += [f for f, _ in near]
        reached |= {s for _, used in near for s in used}
        left = [pair for pair in left if pair not in near]


def _leaves(expr: Expr, worlds: Worlds, highest: bool) -> Iterator[tuple[Fraction | None, Box]]:
    """Boxes in which every condition and branch is decided, the farthest bound first (branch and bound).

    A box is split only while its bound is the farthest of all, so most of the cases are never looked at.
    """
    count = itertools.count()
    heap: list[tuple[tuple[int, Fraction], int, Fraction | None, Box]] = []

    def push(box: Box | None) -> None:
        if box is not None:
            bound = _bound(expr, box, highest)
            rank = (0, ZERO) if bound is None else (1, -bound if highest else bound)
            heapq.heappush(heap, (rank, next(count), bound, box))

    push(narrow(worlds.box, worlds.conditions))
    for _ in range(MAX_CASES):
        if not heap:
            return
        _, _, bound, box = heapq.heappop(heap)
        halves = _split((*worlds.conditions, expr), worlds.conditions, box)
        if halves is None:
            yield bound, box
        else:
            for half in halves:
                push(half)
    raise TooManyCases


def _split(watched: tuple[Expr, ...], conditions: tuple[Expr, ...], box: Box) -> list[Box] | None:
    """The box cut by its first open question; None if there is none, or none that cuts it."""
    for atom in open_atoms(watched, box):
        halves = []
        for case in _cases(atom):
            half = assume(box, case, True)
            half = narrow(half, conditions) if half is not None else None
            if half is not None and half == box and not _decided(atom, half):
                break  # two real numbers compared: assuming it narrows nothing
            if half is not None:
                halves.append(half)
        else:
            return halves
    return None


def _cases(atom: Expr) -> tuple[Expr, ...]:
    if isinstance(atom, Apply) and atom.op in ("==", "!="):
        # "Not equal" is no interval; below and above are.
        return tuple(Apply(op, atom.args) for op in ("==", "<", ">"))
    return atom, Apply("not", (atom,))


def _decided(atom: Expr, box: Box) -> bool:
    known = truth(atom, box)
    return known.no != known.yes


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

