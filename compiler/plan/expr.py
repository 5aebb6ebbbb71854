"""The reward expression of a plan: a small typed tree that both proofs and the run time evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from guerdon.compiler.plan.canonical import Json, parse_rational, rational

Value: TypeAlias = "bool | Fraction | str | tuple[Value, ...]"

OPERATORS = frozenset(
    "+ - * / neg == != < <= > >= and or not implies if min max clamp abs sum mean any all count".split()
)


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    value: Value


@dataclass(frozen=True, slots=True)
class Symbol:
    """A value known when a trajectory is scored.

    `space` says whose it is: `signal` (path = verifier parameter, signal), `trajectory` (path = counter),
    `limit`, `row`, `weight`, `milestone`, `term` (path = one name each).
    """

    space: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        head = {"signal": "", "term": "", "weight": ""}.get(self.space, self.space + ".")
        return head + ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator on its operands."""

    op: str
    args: tuple[Expr, ...]


Expr: TypeAlias = Const | Symbol | Apply


def to_json(expr: Expr) -> Json:
    """Write an expression as nested lists: `["num", "4/5"]`, `["signal", "tests", "gain"]`, `["*", a, b]`."""
    match expr:
        case Const(value):
            return _value_to_json(value)
        case Symbol(space, path):
            return [space, *path]
        case Apply(op, args):
            return [op, *(to_json(a) for a in args)]


def from_json(data: Json) -> Expr:
    """Read an expression; raises ValueError on a malformed one."""
    if not isinstance(data, Sequence) or isinstance(data, str) or not data or not isinstance(data[0], str):
        raise ValueError(f"not an expression: {data!r:.80}")
    head, *rest = data
    if head in ("num", "bool", "str", "list"):
        return Const(_value_from_json(head, rest))
    if head in OPERATORS:
        return Apply(head, tuple(from_json(a) for a in rest))
    if head in ("signal", "trajectory", "limit", "row", "weight", "milestone", "term"):
        if not rest or not all(isinstance(p, str) for p in rest):
            raise ValueError(f"the path of a {head} is one name or more, not {rest!r:.80}")
        return Symbol(head, tuple(str(p) for p in rest))
    raise ValueError(f"unknown operator {head!r}")


def symbols(expr: Expr) -> tuple[Symbol, ...]:
    """The symbols of an expression, each once, in order of first use."""
    seen: dict[Symbol, None] = {}

    def walk(e: Expr) -> None:
        if isinstance(e, Symbol):
            seen.setdefault(e)
        elif isinstance(e, Apply):
            for a in e.args:
                walk(a)

    walk(expr)
    return tuple(seen)


def substitute(expr: Expr, bindings: Mapping[Symbol, Expr]) -> Expr:
    """Replace symbols by expressions, once (what is put in is not searched again)."""
    if isinstance(expr, Symbol):
        return bindings.get(expr, expr)
    if isinstance(expr, Apply):
        return Apply(expr.op, tuple(substitute(a, bindings) for a in expr.args))
    return expr


def _value_to_json(value: Value) -> Json:
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, Fraction):
        return ["num", rational(value)]
    if isinstance(value, str):
        return ["str", value]
    return ["list", *(_value_to_json(v) for v in value)]


def _value_from_json(head: str, rest: Sequence[Json]) -> Value:
    if head == "list":
        return tuple(_const(from_json(v)) for v in rest)
    if len(rest) != 1:
        raise ValueError(f"{head} takes one value, not {len(rest)}")
    (raw,) = rest
    if head == "bool" and isinstance(raw, bool):
        return raw
    if head == "num" and isinstance(raw, str):
        return parse_rational(raw)
    if head == "str" and isinstance(raw, str):
        return raw
    raise ValueError(f"{raw!r} is not a {head}")


def _const(expr: Expr) -> Value:
    if not isinstance(expr, Const):
        raise ValueError("a list literal holds literals only")
    return expr.value
