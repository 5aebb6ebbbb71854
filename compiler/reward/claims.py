"""Deciding what an author claims of a reward: proved, refuted with two replayed trajectories, or unknown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol, Value, substitute, symbols
from guerdon.compiler.reward.direction import direction
from guerdon.compiler.reward.domain import Span, Truth, Unsupported
from guerdon.compiler.reward.extreme import Extreme, TooManyCases, Worlds, attained, extreme, is_empty
from guerdon.compiler.types import decimal

ENGINE = "intervals/1"
SHARED = ("row", "weight")
"""Whose values two compared trajectories have in common."""
MAX_SPLIT = 6
"""Shared values whose ends are decided one by one: 64 corners."""
MAX_SEARCHED = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """`proved`, `refuted` or `unknown`, and the reason in words, line by line."""

    verdict: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an ordering: an expression over a set of worlds, and what a person calls it."""

    expr: Expr
    worlds: Worlds
    title: str


def ordering(better: Side, worse: Side, margin: Fraction, *, strict: bool, shared: Mapping[Symbol, Span]) -> Verdict:
    """Whether every trajectory of `better` scores above every one of `worse`, by at least `margin`.

    Weights that training moves (`shared`) and the values of the row are the same for the two. Where both scores are
    linear in such a value and nothing else depends on it, the gap is the least of linear functions, hence concave,
    so its least value lies at an end of the range; each corner is decided by itself. Any other shared value stays
    free on each side, which can only make the gap smaller.
    """
    lines: tuple[str, ...] = ()
    everything = {**_used(better, worse, ("row",)), **shared}
    linear = {s: r for s, r in everything.items() if _is_linear(better, s) and _is_linear(worse, s)}
    linear = dict(itertools.islice(linear.items(), MAX_SPLIT))
    try:
        for corner in _corners(linear):
            verdict = _at(_fix(better, corner), _fix(worse, corner), margin, strict=strict)
            if verdict.verdict == "unknown":
                verdict = _searched(better, worse, margin, strict=strict) or verdict
            if verdict.verdict != "proved":
                return verdict
            at = "".join(f" at {s} = {decimal(v)}" for s, v in corner.items())
            lines += tuple(line + at for line in verdict.lines)
    except (TooManyCases, Unsupported) as problem:
        return Verdict("unknown", (f"the case split stopped: {problem or 'too many cases'}",))
    return Verdict("proved", lines)


def bound(expr: Expr, worlds: Worlds, *, highest: bool) -> Extreme | None | str:
    """An extreme, or in words why none could be computed."""
    try:
        return extreme(expr, worlds, highest=highest)
    except (TooManyCases, Unsupported) as problem:
        return str(problem) or "too many cases"


def impossible(worlds: Worlds) -> bool:
    """Whether there is surely no such trajectory."""
    try:
        return is_empty(worlds)
    except (TooManyCases, Unsupported):
        return False


def _corners(shared: Mapping[Symbol, Span]) -> Iterator[dict[Symbol, Fraction]]:
    ends = [[e for e in dict.fromkeys((s.low, s.high)) if e is not None] for s in shared.values()]
    for picked in itertools.product(*ends):
        yield dict(zip(shared, picked, strict=True))


def _is_linear(side: Side, symbol: Symbol) -> bool:
    return _degree(side.expr, symbol) <= 1 and not any(symbol in symbols(c) for c in side.worlds.conditions)


def _degree(expr: Expr, symbol: Symbol) -> int:
    """The degree of an expression in a symbol, all others fixed; 2 stands for everything that is not linear."""
    if not isinstance(expr, Apply):
        return int(expr == symbol)
    parts = [_degree(a, symbol) for a in expr.args]
    match expr.op:
        case "+" | "-" | "neg" | "sum" | "mean":
            return max(parts)
        case "*":
            return min(sum(parts), 2)
        case "/":
            return parts[0] if parts[1] == 0 else 2
        case "if":
            return max(parts[1:]) if parts[0] == 0 else 2
    return 2 * int(any(parts))


def _fix(side: Side, corner: Mapping[Symbol, Fraction]) -> Side:
    constants: dict[Symbol, Expr] = {s: Const(v) for s, v in corner.items()}
    facts, assumed = (tuple(substitute(c, constants) for c in conditions)
                      for conditions in (side.worlds.facts, side.worlds.assumptions))
    return Side(substitute(side.expr, constants), Worlds(side.worlds.box, facts, assumed), side.title)


def _at(better: Side, worse: Side, margin: Fraction, *, strict: bool) -> Verdict:
    least = extreme(better.expr, better.worlds, highest=False)
    most = extreme(worse.expr, worse.worlds, highest=True)
    if least is None or most is None:
        empty = better.title if least is None else worse.title
        return Verdict("proved", (f"there is no trajectory that is {empty}",))
    if least.value is not None and most.value is not None:
        gap = least.value - most.value
        if gap > margin or (gap == margin and not strict):
            return Verdict("proved", (f"least of {better.title} {decimal(least.value)}, "
                                      f"most of {worse.title} {decimal(most.value)}",))
    if least.world is None or most.world is None:
        return Verdict("unknown", (_unbounded(least, most),))
    if _shared_values(least.world) != _shared_values(most.world):
        return Verdict("unknown", ("the two trajectories found are of different rows or weights",))
    return Verdict("refuted", _witness(better, least, worse, most))


def _searched(better: Side, worse: Side, margin: Fraction, *, strict: bool) -> Verdict | None:
    """Two trajectories of one row, at the same weights, that break an ordering, if some are found."""
    for corner in itertools.islice(_corners(_used(better, worse, SHARED)), MAX_SEARCHED):
        low, high = _fix(better, corner), _fix(worse, corner)
        least = attained(low.expr, low.worlds, highest=False)
        most = attained(high.expr, high.worlds, highest=True)
        if least is None or most is None or least.value is None or most.value is None:
            continue
        gap = least.value - most.value
        if gap < margin or (gap == margin and strict):
            at = "".join(f" at {s} = {decimal(v)}" for s, v in corner.items())
            return Verdict("refuted", tuple(line + at for line in _witness(low, least, high, most)))
    return None


def _used(better: Side, worse: Side, spaces: tuple[str, ...]) -> dict[Symbol, Span]:
    """The symbols of some spaces that a comparison looks at, with their (finite) ranges."""
    used = {s for side in (better, worse) for e in (side.expr, *side.worlds.conditions) for s in symbols(e)}
    ranges = {s: better.worlds.box[s] for s in sorted(used, key=str) if s.space in spaces}
    return {s: r for s, r in ranges.items() if isinstance(r, Span) and r.low is not None and r.high is not None}


def _unbounded(least: Extreme, most: Extreme) -> str:
    if least.value is None or most.value is None:
        return "one side has no bound: give every signal and limit a range"
    return (f"by intervals the better side may fall to {decimal(least.value)} and the worse rise to "
            f"{decimal(most.value)}, but no two trajectories were found that do so")


def _shared_values(world: Mapping[Symbol, Value]) -> dict[Symbol, Value]:
    """What two compared trajectories have in common: the row's values and the weights."""
    return {s: v for s, v in world.items() if s.space in SHARED}


def _witness(better: Side, least: Extreme, worse: Side, most: Extreme) -> tuple[str, ...]:
    assert least.value is not None and most.value is not None
    return (
        f"{better.title} can score {decimal(least.value)}: {_world(better.expr, least.world)}",
        f"{worse.title} can score {decimal(most.value)}: {_world(worse.expr, most.world)}",
    )


def _world(expr: Expr, world: Mapping[Symbol, Value] | None) -> str:
    used = [s for s in symbols(expr) if world is not None and s in world]
    shown = [f"{s} = {_shown(world[s])}" for s in used] if world is not None else []
    return ", ".join(shown) or "whatever it does"


def _shown(value: Value) -> str:
    return decimal(value) if isinstance(value, Fraction) else str(value).lower()


def monotone(expr: Expr, signal: Symbol, worlds: Worlds, *, rises: bool, strictly: bool) -> Verdict:
    """Whether a score never falls (or never rises) when one signal alone grows and all facts still hold.

    The grown signal is written `signal + step`, so that in an affine case everything but the step cancels.
    """
    have = worlds.box.get(signal)
    if have is None:
        return Verdict("unknown", (f"{signal} is no signal of this reward",))
    if not strictly and signal not in symbols(expr):
        return Verdict("proved", (f"the score does not depend on {signal}",))
    if not strictly and _reads_off(expr, signal, worlds, 1 if rises else -1):
        return Verdict("proved")
    pair = _boolean_pair(expr, signal, worlds) if isinstance(have, Truth) else _stepped(expr, signal, have, worlds)
    if pair is None:
        return Verdict("unknown", (f"{signal} has no finite range",))
    before, after, both = pair
    difference = Apply("-", (after, before) if rises else (before, after))
    change = bound(difference, both, highest=False)
    if isinstance(change, str):
        return Verdict("unknown", (change,))
    if change is None:
        return Verdict("proved", (f"{signal} cannot change by itself",))
    if change.value is not None and (change.value > 0 or (change.value == 0 and not strictly)):
        return Verdict("proved")
    if change.world is None:
        change = _worst(difference, both) or change
    if change.value is not None and change.world is not None and (change.value < 0 or strictly):
        way = "falls" if rises else "rises"
        told = f"{way} by {decimal(-change.value)}" if change.value else "stays as it is"
        return Verdict("refuted", (f"the score {told} when {signal} alone grows, from {_world(expr, change.world)}",))
    return Verdict("unknown", ("intervals do not decide it",))


def _worst(difference: Expr, worlds: Worlds) -> Extreme | None:
    """A growth of the signal by which the score moves the wrong way (or, on the way to a strict claim, not at all)."""
    try:
        found = attained(difference, worlds, highest=False)
    except Unsupported:
        return None
    return found if found is not None and found.value is not None and found.value <= 0 else None


def _reads_off(expr: Expr, signal: Symbol, worlds: Worlds, wanted: int) -> bool:
    try:
        return direction(expr, signal, worlds.box) in (0, wanted)
    except Unsupported:
        return False


def _boolean_pair(expr: Expr, signal: Symbol, worlds: Worlds) -> tuple[Expr, Expr, Worlds]:
    sides: list[dict[Symbol, Expr]] = [{signal: Const(False)}, {signal: Const(True)}]
    conditions = tuple(substitute(c, side) for side in sides for c in worlds.conditions)
    # Both copies of the facts are assumptions: unlike the facts of one trajectory, they may exclude each other.
    return substitute(expr, sides[0]), substitute(expr, sides[1]), Worlds(worlds.box, (), conditions)


def _stepped(expr: Expr, signal: Symbol, have: Span, worlds: Worlds) -> tuple[Expr, Expr, Worlds] | None:
    if have.low is None or have.high is None:
        return None
    step = Symbol(signal.space, (*signal.path, "step"))
    grown = Apply("+", (signal, step))
    least = Fraction(1 if have.whole else 0)
    box = {**worlds.box, step: Span(least, max(least, have.high - have.low), have.whole)}
    after: dict[Symbol, Expr] = {signal: grown}
    conditions = (*worlds.conditions, *(substitute(c, after) for c in worlds.conditions),
                  Apply("<=", (grown, Const(have.high))), Apply(">", (step, Const(Fraction(0)))))
    return expr, substitute(expr, after), Worlds(box, (), conditions)
