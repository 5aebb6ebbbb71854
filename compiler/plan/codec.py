"""Plan dataclasses to JSON and back, driven by their type hints; a malformed one is named by its path."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from guerdon.compiler.plan import expr as expressions
from guerdon.compiler.plan.canonical import Json, parse_rational
from guerdon.compiler.plan.schema import PLAN_FORMAT, InstancePlan, Plan, Rational


class PlanError(Exception):
    """A plan or a line of its sidecar is not what the format says; the message holds the path inside it."""


def plan_to_json(plan: Plan) -> Json:
    """The document that `plan.json` holds."""
    body = to_json(plan)
    assert isinstance(body, dict)
    return {"format": PLAN_FORMAT, **body}


def plan_from_json(data: object) -> Plan:
    """Read a plan; raises PlanError."""
    if not isinstance(data, dict):
        raise PlanError("a plan is a JSON object")
    if data.get("format") != PLAN_FORMAT:
        raise PlanError(f"format is {data.get('format')!r}, this version reads {PLAN_FORMAT!r}")
    plan: Plan = _read(Plan, {k: v for k, v in data.items() if k != "format"}, "plan")
    return plan


def instance_from_json(data: object) -> InstancePlan:
    """Read one line of the rows sidecar; raises PlanError."""
    instance: InstancePlan = _read(InstancePlan, data, "instance")
    return instance


def to_json(value: Any) -> Any:
    """Write a plan dataclass (or what it holds) as JSON data."""
    if isinstance(value, expressions.Const | expressions.Symbol | expressions.Apply):
        return expressions.to_json(value)
    if is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {k: to_json(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _read(kind: Any, data: Any, where: str) -> Any:
    if kind in _EXPR_KINDS:
        return _read_expr(data, where)
    if is_dataclass(kind):
        return _read_dataclass(kind, data, where)
    if kind in (str, int, bool):
        if type(data) is not kind:
            raise PlanError(f"{where}: expected {kind.__name__}, found {data!r:.80}")
        return data
    if kind == Rational:
        return _read_rational(data, where)
    origin = get_origin(kind)
    if origin in _READERS:
        return _READERS[origin](get_args(kind), data, where)
    return data  # free JSON (settings, JSON schemas)


def _read_expr(data: Any, where: str) -> expressions.Expr:
    try:
        return expressions.from_json(data)
    except (ValueError, ZeroDivisionError, RecursionError) as problem:
        raise PlanError(f"{where}: {problem}") from None


def _read_rational(data: Any, where: str) -> str:
    try:
        parse_rational(data)
    except (TypeError, ValueError, ZeroDivisionError):
        raise PlanError(f"{where}: expected a rational such as '3' or '4/5', found {data!r:.80}") from None
    return str(data)


def _read_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise PlanError(f"{where}: expected an object, found {data!r:.80}")
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise PlanError(f"{where}: unknown key {unknown[0]!r}")
    values = {}
    for field in fields(kind):
        if field.name in data:
            values[field.name] = _read(hints[field.name], data[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise PlanError(f"{where}: key {field.name!r} is missing")
    return kind(**values)


def _read_tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise PlanError(f"{where}: expected a list, found {data!r:.80}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_read(args[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    if len(args) != len(data):
        raise PlanError(f"{where}: expected {len(args)} members, found {len(data)}")
    return tuple(_read(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, data, strict=True)))


def _read_mapping(args: tuple[Any, ...], data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PlanError(f"{where}: expected an object, found {data!r:.80}")
    return {k: _read(args[1], v, f"{where}.{k}") for k, v in data.items()}


def _read_union(args: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    (kind,) = (a for a in args if a is not type(None))
    return _read(kind, data, where)


_EXPR_KINDS = (expressions.Expr,)
_READERS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    tuple: _read_tuple, Mapping: _read_mapping, types.UnionType: _read_union, Union: _read_union,
}
