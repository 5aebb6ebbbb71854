"""What a reward is checked in: its task's limits and rules, the verifiers and milestones bound to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from guerdon.compiler.plan.expr import Apply, Const, Expr, Symbol
from guerdon.compiler.plan.schema import MAX_CALLS_PER_TURN, LimitsPlan
from guerdon.compiler.reward.domain import Span, Truth
from guerdon.compiler.reward.typing import Namespace, Typed, Typer
from guerdon.compiler.types import Type
from guerdon.dsl import tree
from guerdon.dsl.diagnostic import Diagnostic

NAMED_TRAJECTORIES = ("idle", "refusal", "quit", "late")


@dataclass(frozen=True)
class BoundVerifier:
    """A verifier as a task binds it: its signals, the facts that tie them, its signals at the start."""

    name: str
    kind: str
    declared: str
    signals: Mapping[str, Type]
    facts: tuple[tree.Expr, ...]
    start: Mapping[str, tree.Expr]
    reads_text: bool = False
    """It judges what the agent said, not what it left: words alone can move its signals."""


@dataclass(frozen=True)
class TaskContext:
    """The part of a task that its reward may speak of."""

    limits: LimitsPlan
    forbids: int
    verifiers: Mapping[str, BoundVerifier]
    milestones: tuple[str, ...]
    false_at_start: frozenset[str]
    """Milestones that cannot hold while nothing has been done."""
    limits_are_known: bool = True
    """Otherwise nothing is proved: within limits that are wrong, a proof would only add wrong errors."""


def counters(context: TaskContext) -> dict[str, Type]:
    """`trajectory.*` with the ranges that the task's limits give them."""
    limits = context.limits
    calls = Fraction(limits.turns * MAX_CALLS_PER_TURN)
    zero = Fraction(0)
    return {
        "turns": Type("int", zero, Fraction(limits.turns)),
        "tool_calls": Type("int", zero, calls),
        "malformed_calls": Type("int", zero, calls),
        "repeated_calls": Type("int", zero, calls),
        "tokens": Type("int", zero, None if limits.tokens is None else Fraction(limits.tokens)),
        "wall": Type("duration", zero, Fraction(limits.wall_ms)),
        "truncated": Type("bool"),
        "submitted": Type("bool"),
        "violations": Type("int", zero, Fraction(context.forbids)),
    }


def base_names(context: TaskContext) -> Namespace:
    """The names every reward of the task sees: `trajectory` and `limit`."""
    names = Namespace()
    names.groups["trajectory"] = {n: names.symbol("trajectory", (n,), t) for n, t in counters(context).items()}
    limits = context.limits
    known = {"turns": Typed(Const(Fraction(limits.turns)), "number"),
             "wall": Typed(Const(Fraction(limits.wall_ms)), "duration")}
    if limits.tokens is not None:
        known["tokens"] = Typed(Const(Fraction(limits.tokens)), "number")
    names.groups["limit"] = known
    return names


def signal_group(verifier: BoundVerifier, names: Namespace) -> dict[str, Typed]:
    """The signals of one verifier as symbols."""
    return {s: names.symbol("signal", (verifier.name, s), t) for s, t in verifier.signals.items()}


def idle_symbol(verifier: BoundVerifier) -> Symbol:
    """Whether a verifier saw what an idle trajectory leaves: open in general, true in the named trajectories."""
    return Symbol("trajectory", ("idle", verifier.name))


def fact_namespace(verifier: BoundVerifier, names: Namespace) -> Namespace:
    """What a fact may name: the verifier's own signals, and `idle` as a truth value."""
    group = signal_group(verifier, names)
    names.box[idle_symbol(verifier)] = Truth(True, True)
    return Namespace(values={**group, "idle": Typed(idle_symbol(verifier), "bool")}, box=names.box)


def facts(context: TaskContext, names: Namespace, found: list[Diagnostic]) -> tuple[Expr, ...]:
    """Everything that holds by construction or by run-time assert, in any trajectory."""
    result: list[Expr] = []
    for verifier in context.verifiers.values():
        typer = Typer(fact_namespace(verifier, names), found)
        result += [typer.boolean(f, "a fact").expr for f in verifier.facts]
    return tuple(result)


def counter_facts() -> tuple[Expr, ...]:
    """How the harness counts: malformed and repeated calls are calls, and no turn means no call."""
    turns, calls, malformed, repeated, tokens = (
        Symbol("trajectory", (n,)) for n in ("turns", "tool_calls", "malformed_calls", "repeated_calls", "tokens"))
    zero = Const(Fraction(0))
    nothing = Apply("==", (turns, zero))
    return (
        Apply("implies", (nothing, Apply("==", (calls, zero)))),
        Apply("implies", (nothing, Apply("==", (malformed, zero)))),
        Apply("implies", (Apply("==", (calls, zero)), Apply("==", (repeated, zero)))),
        Apply("implies", (nothing, Apply("==", (tokens, zero)))),
    )


def start_conditions(context: TaskContext, names: Namespace, found: list[Diagnostic], *, speaks: bool) -> list[Expr]:
    """The signals as they are when no artefact has been touched, and the milestones that cannot hold then.

    An agent that `speaks` gives the verifiers of text something to read: only that it does not pass is sure.
    """
    result: list[Expr] = []
    for verifier in context.verifiers.values():
        group = signal_group(verifier, names)
        typer = Typer(Namespace(values=dict(group), box=names.box), found)
        heard = speaks and verifier.reads_text
        result += [Apply("==", (group[s].expr, typer.typed(e).expr)) for s, e in verifier.start.items()
                   if s in group and (s == "passed" or not heard)]
        if not heard:
            result.append(idle_symbol(verifier))
    result += [Apply("not", (Symbol("milestone", (m,)),)) for m in context.milestones if m in context.false_at_start]
    return result


def named_trajectory(name: str, context: TaskContext, names: Namespace, solved: Expr,
                     found: list[Diagnostic]) -> tuple[Expr, ...]:
    """The conditions that make a trajectory `idle`, a `refusal`, a `quit` or `late`."""
    def counter(which: str) -> Symbol:
        return Symbol("trajectory", (which,))

    def equals(which: str, value: int) -> Expr:
        return Apply("==", (counter(which), Const(Fraction(value))))

    if name == "late":
        return (solved, equals("turns", context.limits.turns))
    clean: list[Expr] = [equals(c, 0) for c in ("malformed_calls", "repeated_calls", "violations")]
    clean += start_conditions(context, names, found, speaks=name != "idle")
    if name == "quit":
        return (*clean, equals("turns", 1), equals("tool_calls", 1), counter("submitted"))
    clean += [equals("tool_calls", 0), Apply("not", (counter("submitted"),))]
    if name == "refusal":
        clean.append(Apply(">=", (counter("turns"), Const(Fraction(1)))))
    return tuple(clean)


def initial_box(names: Namespace, context: TaskContext) -> dict[Symbol, Span | Truth]:
    """What each symbol may be, milestones included."""
    box = dict(names.box)
    for milestone in context.milestones:
        box.setdefault(Symbol("milestone", (milestone,)), Truth(True, True))
    return box
