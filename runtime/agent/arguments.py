"""Checking a call's raw JSON arguments: hostile text in, plain values or one readable error out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from guerdon.compiler.plan.canonical import Json

ARGUMENT_BYTES = 4 * 1024 * 1024
"""Longest argument text that is read at all."""


class BadArguments(Exception):
    """The arguments are not what the tool takes; the message is written for the model to read."""


def parse(raw: str, schema: Mapping[str, Json]) -> dict[str, Any]:
    """Read a call's arguments and check them against the tool's schema.

    Takes strict JSON only: no duplicate key, no NaN, no half of a surrogate pair. The schema subset is
    object (required, properties, additionalProperties), string, integer, boolean, array, anyOf and enum.
    Raises BadArguments.
    """
    try:
        size = len(raw.encode())
    except UnicodeEncodeError:
        raise BadArguments("the arguments are not valid UTF-8 text") from None
    if size > ARGUMENT_BYTES:
        raise BadArguments(f"the arguments are {size} bytes long, over the limit of {ARGUMENT_BYTES}")
    value = _decode(raw)
    problem = mismatch(schema, value, "arguments")
    if problem:
        raise BadArguments(problem)
    assert isinstance(value, dict)
    return value


def canonical(arguments: Mapping[str, Any]) -> str:
    """One text for equal arguments, whatever their spacing and key order."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _decode(raw: str) -> Any:
    try:
        value = json.loads(raw, object_pairs_hook=unique, parse_constant=no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadArguments("the arguments hold half of a surrogate pair (not valid Unicode text)") from None
    except json.JSONDecodeError as wrong:
        where = f"{wrong.msg} at character {wrong.pos}"
        raise BadArguments(f"the arguments are not valid JSON: {where}") from None
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None
    except ValueError as wrong:  # an integer of thousands of digits
        raise BadArguments(f"the arguments are not valid JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments must be a JSON object, not {_kind(value)}")
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object that gives a key twice (which of the two a reader takes differs)."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadArguments(f"the key {key!r} is given twice")
        found[key] = value
    return found


def no_constant(name: str) -> Any:
    """Refuse NaN and the infinities, which Python would read and no other JSON reader does."""
    raise BadArguments(f"{name} is not valid JSON")


def mismatch(schema: Mapping[str, Json], value: Any, where: str) -> str | None:
    """What keeps `value` from the schema, in words, or None."""
    options = schema.get("anyOf")
    if isinstance(options, Sequence):
        wants = [o for o in options if isinstance(o, Mapping)]
        if any(mismatch(o, value, where) is None for o in wants):
            return None
        return f"{where} must be {' or '.join(_wanted(o) for o in wants)}, not {_kind(value)}"
    choices = schema.get("enum")
    if isinstance(choices, Sequence) and value not in choices:
        return f"{where} must be one of {', '.join(repr(c) for c in choices)}, not {value!r}"
    wanted = schema.get("type")
    if isinstance(wanted, str) and not _is(wanted, value):
        return f"{where} must be {_wanted(schema)}, not {_kind(value)}"
    if wanted == "object":
        return _object(schema, value, where)
    items = schema.get("items")
    if wanted == "array" and isinstance(items, Mapping):
        problems = (mismatch(items, item, f"{where}[{i}]") for i, item in enumerate(value))
        return next((p for p in problems if p), None)
    return None


def _object(schema: Mapping[str, Json], value: Mapping[str, Any], where: str) -> str | None:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for key in required if isinstance(required, Sequence) else ():
        if key not in value:
            return f"{where} must have {key!r}"
    for key, item in value.items():
        if key not in known:
            if schema.get("additionalProperties") is False:
                return f"{where} has no {key!r}; it takes {', '.join(repr(k) for k in known) or 'nothing'}"
            continue
        inner = known[key]
        problem = mismatch(inner, item, repr(key)) if isinstance(inner, Mapping) else None
        if problem:
            return problem
    return None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,),
    "integer": (int,), "number": (int, float), "null": (type(None),),
}
_WORDS = {
    dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer",
    float: "a number", type(None): "null",
}


def _is(wanted: str, value: Any) -> bool:
    if isinstance(value, bool) and wanted != "boolean":  # in Python a bool is an int; in JSON it is not
        return False
    return isinstance(value, _TYPES.get(wanted, ()))


def _wanted(schema: Mapping[str, Json]) -> str:
    wanted = schema.get("type")
    items = schema.get("items")
    if wanted == "array" and isinstance(items, Mapping) and isinstance(items.get("type"), str):
        return f"an array of {items['type']}s"
    return f"{'an' if wanted in ('object', 'array', 'integer') else 'a'} {wanted}"


def _kind(value: Any) -> str:
    return _WORDS.get(type(value), type(value).__name__)
