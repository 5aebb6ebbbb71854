"""The reward analysis against brute force: every world of small domains, scored by the run-time evaluator."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from guerdon.compiler.plan.evaluate import number, truth
from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, Value
from guerdon.compiler.reward.claims import Side, monotone, ordering
from guerdon.compiler.reward.domain import Span, Truth, Unsupported
from guerdon.compiler.reward.extreme import TooManyCases, Worlds, extreme

EXAMPLES = int(os.environ.get("GUERDON_DIFFERENTIAL", "250"))
check = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
tally: Counter[str] = Counter()

BOOLS = tuple(Symbol("signal", ("v", name)) for name in ("a", "b"))
INTS = tuple(Symbol("signal", ("v", name)) for name in ("i", "j"))
ROW = Symbol("row", ("level",))
WEIGHT = Symbol("weight", ("w",))
World = Mapping[Symbol, Value]


def fractions(low: int, high: int) -> st.SearchStrategy[Fraction]:
    return st.builds(Fraction, st.integers(low, high), st.sampled_from([1, 2, 5]))


@st.composite
def numbers(draw: st.DrawFn, symbols: tuple[Symbol, ...], depth: int) -> Expr:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.one_of(st.sampled_from(symbols), fractions(-4, 4).map(Const)))
    inner = numbers(symbols, depth - 1)
    condition = booleans(symbols, depth - 1)
    op = draw(st.sampled_from("+ - * / neg min max abs sum mean clamp if count one".split()))
    match op:
        case "neg" | "abs":
            return Apply(op, (draw(inner),))
        case "sum" | "mean":
            return Apply(op, tuple(draw(st.lists(inner, min_size=1, max_size=3))))
        case "clamp":
            low = draw(fractions(-4, 4))
            return Apply(op, (draw(inner), Const(low), Const(low + draw(st.integers(0, 3)))))
        case "/":
            return Apply(op, (draw(inner), Const(Fraction(draw(st.sampled_from([-3, -1, 2, 5]))))))
        case "if":
            return Apply(op, (draw(condition), draw(inner), draw(inner)))
        case "one":
            return Apply("if", (draw(condition), Const(Fraction(1)), Const(Fraction(0))))
        case "count":
            return Apply(op, tuple(draw(st.lists(condition, min_size=1, max_size=3))))
    return Apply(op, (draw(inner), draw(inner)))


@st.composite
def booleans(draw: st.DrawFn, symbols: tuple[Symbol, ...], depth: int) -> Expr:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(BOOLS))
    inner, value = booleans(symbols, depth - 1), numbers(symbols, depth - 1)
    op = draw(st.sampled_from("not and or implies any all if same compare compare compare".split()))
    match op:
        case "not":
            return Apply(op, (draw(inner),))
        case "any" | "all":
            return Apply(op, tuple(draw(st.lists(inner, min_size=1, max_size=3))))
        case "if":
            return Apply(op, (draw(inner), draw(inner), draw(inner)))
        case "same":
            return Apply(draw(st.sampled_from(["==", "!="])), (draw(inner), draw(inner)))
        case "compare":
            return Apply(draw(st.sampled_from("< <= > >= == !=".split())), (draw(value), draw(value)))
    return Apply(op, (draw(inner), draw(inner)))


@dataclass(frozen=True)
class Case:
    box: Mapping[Symbol, Span | Truth]
    facts: tuple[Expr, ...]
    score: Expr

    def worlds(self) -> Worlds:
        return Worlds(self.box, self.facts)

    def all(self, *fixed: tuple[Symbol, Value]) -> Iterator[World]:
        """Every world of the domains in which all facts hold."""
        given = dict(fixed)
        choices = [[given[s]] if s in given else domain(self.box[s]) for s in self.box]
        for picked in itertools.product(*choices):
            world = dict(zip(self.box, picked, strict=True))
            if all(truth(f, world) for f in self.facts):
                yield world


def domain(have: Span | Truth) -> list[Value]:
    if isinstance(have, Truth):
        return [False, True]
    assert have.low is not None and have.high is not None
    if have.whole:
        return [Fraction(n) for n in range(int(have.low), int(have.high) + 1)]
    return [have.low + (have.high - have.low) * Fraction(k, 4) for k in range(5)]


@st.composite
def cases(draw: st.DrawFn, *extra: Symbol) -> Case:
    box: dict[Symbol, Span | Truth] = dict.fromkeys(BOOLS, Truth(True, True))
    for symbol in INTS:
        low = draw(st.integers(-2, 1))
        box[symbol] = Span(Fraction(low), Fraction(low + draw(st.integers(0, 3))), True)
    if ROW in extra:
        box[ROW] = Span(Fraction(1), Fraction(draw(st.integers(1, 3))), True)
    if WEIGHT in extra:
        box[WEIGHT] = Span(Fraction(0), draw(st.sampled_from([Fraction(1), Fraction(1, 2)])))
    symbols = tuple(s for s in box if s not in BOOLS)
    facts = tuple(draw(st.lists(booleans(INTS, 2), max_size=2)))
    case = Case(box, facts, draw(numbers(symbols, 3)))
    assume(any(True for _ in Case({s: d for s, d in box.items() if s not in extra}, facts, case.score).all()))
    return case


@check
@given(cases(), st.lists(booleans(INTS, 2), max_size=1), st.booleans())
def test_extreme_is_exact_with_a_witness_and_sound_without(case: Case, given_: list[Expr], highest: bool) -> None:
    worlds = case.worlds().given(*given_)
    values = [number(case.score, w) for w in case.all() if all(truth(g, w) for g in given_)]
    try:
        found = extreme(case.score, worlds, highest=highest)
    except TooManyCases:
        tally["extreme too many cases"] += 1
        return
    if found is None:
        tally["extreme empty"] += 1
        assert values == []
        return
    true = (max(values) if highest else min(values)) if values else None
    if found.world is not None:
        tally["extreme exact"] += 1
        assert found.value == true
    else:
        tally["extreme without witness"] += 1
        assert true is None or found.value is None or (found.value >= true if highest else found.value <= true)


@check
@given(cases(ROW, WEIGHT), booleans((*INTS, WEIGHT), 2), fractions(0, 1), st.booleans(), st.booleans())
def test_ordering_agrees_with_brute_force(
    case: Case, solved: Expr, margin: Fraction, strict: bool, moves: bool,
) -> None:
    weight = case.box[WEIGHT]
    assert isinstance(weight, Span)
    case = case if moves else Case({**case.box, WEIGHT: Span(Fraction(1), Fraction(1))}, case.facts, case.score)
    sides = [Side(case.score, case.worlds().given(e), t) for e, t in (
        (solved, "solved"), (Apply("not", (solved,)), "not solved"))]
    verdict = ordering(*sides, margin, strict=strict, shared={WEIGHT: weight} if moves else {})
    holds = all(_ordered(case, solved, margin, strict, (ROW, row), (WEIGHT, w))
                for row in domain(case.box[ROW]) for w in domain(case.box[WEIGHT]))
    tally[f"ordering {verdict.verdict}, truly {holds}"] += 1
    assert verdict.verdict != "proved" or holds
    assert verdict.verdict != "refuted" or not holds


def _ordered(case: Case, solved: Expr, margin: Fraction, strict: bool, *fixed: tuple[Symbol, Value]) -> bool:
    better, worse = [], []
    for world in case.all(*fixed):
        (better if truth(solved, world) else worse).append(number(case.score, world))
    if not better or not worse:
        return True
    gap = min(better) - max(worse)
    return gap > margin if strict else gap >= margin


@check
@given(cases(WEIGHT), st.sampled_from([*BOOLS, *INTS]), st.booleans(), st.booleans())
def test_monotone_agrees_with_brute_force(case: Case, signal: Symbol, rises: bool, strictly: bool) -> None:
    verdict = monotone(case.score, signal, case.worlds(), rises=rises, strictly=strictly)
    changes = [(after - before) * (1 if rises else -1) for before, after in _growth(case, signal)]
    holds = all(c > 0 if strictly else c >= 0 for c in changes)
    tally[f"monotone {verdict.verdict}, truly {holds}"] += 1
    assert verdict.verdict != "proved" or holds
    assert verdict.verdict != "refuted" or not holds


def _growth(case: Case, signal: Symbol) -> Iterator[tuple[Fraction, Fraction]]:
    """The scores of every two worlds that differ in one signal alone, the one with less of it first."""
    lines: dict[tuple[Value, ...], list[tuple[Value, Fraction]]] = {}
    for world in case.all():
        rest = tuple(v for s, v in world.items() if s != signal)
        lines.setdefault(rest, []).append((world[signal], number(case.score, world)))
    for line in lines.values():
        for (low, before), (high, after) in itertools.permutations(line, 2):
            if low < high:
                yield before, after


REAL = Symbol("signal", ("v", "share"))


@check
@given(numbers((REAL, *INTS), 3), st.lists(booleans((REAL, *INTS), 2), max_size=2), st.booleans(),
       st.lists(fractions(0, 1).filter(lambda f: f <= 1), min_size=5, max_size=5))
def test_bounds_hold_for_every_value_of_a_real_signal(
    score: Expr, facts: list[Expr], highest: bool, points: list[Fraction],
) -> None:
    box: dict[Symbol, Span | Truth] = {**dict.fromkeys(BOOLS, Truth(True, True)), REAL: Span(Fraction(0), Fraction(1)),
                                       **dict.fromkeys(INTS, Span(Fraction(0), Fraction(2), True))}
    try:
        found = extreme(score, Worlds(box, tuple(facts)), highest=highest)
    except (TooManyCases, Unsupported):
        return
    for share in {*points, Fraction(0), Fraction(1), Fraction(1, 3)}:
        for world in Case(box, tuple(facts), score).all((REAL, share)):
            value = number(score, world)
            assert found is not None
            assert found.value is None or (value <= found.value if highest else value >= found.value)


if __name__ == "__main__":
    for test in (test_extreme_is_exact_with_a_witness_and_sound_without, test_ordering_agrees_with_brute_force,
                 test_monotone_agrees_with_brute_force, test_bounds_hold_for_every_value_of_a_real_signal):
        test()
    for name, count in sorted(tally.items()):
        print(f"{count:6} {name}")
