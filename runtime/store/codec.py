"""Sealed episodes as JSON and back, exactly: every field, every rational, every float to its last bit."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any

from guerdon.compiler.plan.expr import Const, Value, from_json, to_json
from guerdon.runtime.contracts.trajectory import Sealed, Verdict

FORMAT = "guerdon.trajectory/1"


def encode(sealed: Sealed) -> bytes:
    """One line of JSON without its line end. Raises ValueError on a float that is not finite."""
    document = {"format": FORMAT, **_pack(sealed)}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode(line: bytes) -> Sealed:
    """What `encode` wrote. Raises ValueError on anything else."""
    try:
        document = json.loads(line)
        if document.pop("format", None) != FORMAT:
            raise ValueError(f"not a {FORMAT}")
        sealed: Sealed = _unpack(Sealed, document)
    except (TypeError, KeyError, AttributeError, RecursionError) as wrong:
        raise ValueError(f"not a sealed episode: {wrong}") from wrong
    return sealed


def _pack(value: Any) -> Any:
    if isinstance(value, Verdict):
        signals = {name: to_json(Const(v)) for name, v in value.signals.items()}
        return {**_fields(value), "signals": signals, "details": _plain(value.details)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _pack(item) for key, item in value.items()}
    return [_pack(item) for item in value] if isinstance(value, tuple | list) else value


def _fields(value: Any) -> dict[str, Any]:
    skipped = ("signals", "details") if isinstance(value, Verdict) else ()
    names = [f.name for f in dataclasses.fields(value) if f.name not in skipped]
    return {name: _pack(getattr(value, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _unpack(kind: Any, data: Any) -> Any:
    if kind is Verdict:
        signals: dict[str, Value] = {}
        for name, raw in data["signals"].items():
            literal = from_json(raw)
            if not isinstance(literal, Const):
                raise ValueError(f"signal {name} is no value")
            signals[name] = literal.value
        return _build(Verdict, data, {"signals": signals, "details": data["details"]})
    if dataclasses.is_dataclass(kind):
        return _build(kind, data, {})
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else _unpack(next(a for a in args if a is not type(None)), data)
    if origin is tuple:
        return tuple(_unpack(args[0], item) for item in data)
    if origin is not None and issubclass(_class(origin), Mapping):
        return {key: _unpack(args[1], item) for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return _scalar(kind, data)


def _scalar(kind: Any, data: Any) -> Any:
    if kind in (int, str, bool, float) and type(data) is not kind:
        raise ValueError(f"{data!r} is not a {kind.__name__}")
    return data


def _build(kind: Any, data: Any, given: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    unknown = set(data) - set(hints)
    if unknown:
        raise ValueError(f"{kind.__name__} has no {sorted(unknown)[0]!r}")
    rest = {name: _unpack(hints[name], item) for name, item in data.items() if name not in given}
    return kind(**rest, **given)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    # The recursive aliases are strings; what they hold is packed and unpacked above, without their help.
    return typing.get_type_hints(kind, localns={"Value": Any, "Json": Any})


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object
