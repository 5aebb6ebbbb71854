"""Compile-time values: typed, labelled `secret` where they came from something secret."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from guerdon.compiler.plan.canonical import Json, rational
from guerdon.compiler.types import BROKEN, STRING, Type, decimal
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.literals import DURATIONS, SIZES
from guerdon.dsl.source import Span


@dataclass(frozen=True, slots=True)
class Val:
    """A value; `data` is a str, Fraction, bool, tuple of Val, dict of Val (a row) or a Declaration."""

    type: Type
    data: Any
    secret: bool = False

    @property
    def broken(self) -> bool:
        return self.type is BROKEN


NOTHING = Val(BROKEN, None)
UNIT_NAMES = {"duration": ", ".join(DURATIONS), "size": ", ".join(SIZES)}


def text_of(value: Val) -> str | None:
    """How a value reads inside a string, or None where it has no text."""
    if isinstance(value.data, bool):
        return "true" if value.data else "false"
    if isinstance(value.data, Fraction):
        return decimal(value.data)
    if isinstance(value.data, str) and value.type.name != "asset":
        return value.data
    return None


def to_setting(value: Val) -> Json:
    """A value as the plan's JSON: integers as numbers, other numbers as rationals."""
    data = value.data
    if isinstance(data, Fraction):
        return data.numerator if value.type.name != "real" and data.denominator == 1 else rational(data)
    if isinstance(data, tuple):
        return [to_setting(v) for v in data]
    if data is None or isinstance(data, bool | str):
        return data
    raise TypeError(f"{value.type} has no place in a plan")


def fits(value: Val, wanted: Type) -> bool:
    """Whether a value is of a type, ranges apart."""
    have = value.type.name
    match wanted.name:
        case "any":
            return True
        case "real":
            return have in ("int", "real")
        case "path":
            return have in ("path", "string", "asset") or value.data is None
        case "strings":
            return have in ("string", "path") or (have == "list" and all(fits(v, STRING) for v in value.data))
        case "string":
            return have in ("string", "path")
        case "list":
            element = wanted.element
            return have == "list" and (element is None or all(fits(v, element) for v in value.data))
        case "image":
            return have in ("string", "image")
        case _:
            return have == wanted.name


def coerce(value: Val, wanted: Type, span: Span, what: str, found: list[Diagnostic]) -> Val:
    """The value as a type, or NOTHING and an error (wrong type T201, wrong unit T202, out of range T203)."""
    if value.broken or wanted is BROKEN:
        return value
    if not fits(value, wanted):
        numbers = value.type.is_number and wanted.is_number
        found.append(error("T202" if numbers else "T201",
                           f"{what} must be {_article(wanted)}, this is {_article(value.type)}", span,
                           help=_unit_help(value, wanted) if numbers else _type_help(value, wanted, span)))
        return NOTHING
    if isinstance(value.data, Fraction):
        below = wanted.low is not None and value.data < wanted.low
        above = wanted.high is not None and value.data > wanted.high
        if below or above:
            found.append(error("T203", f"{what} is {decimal(value.data)}, outside of {wanted}", span,
                               help=f"give a value in {decimal(wanted.low or Fraction(0))}.."
                               f"{decimal(wanted.high) if wanted.high is not None else ''}"))
            return NOTHING
    return Val(wanted if wanted.name != "any" else value.type, value.data, value.secret or wanted.secret)


def _article(kind: Type) -> str:
    names = {"strings": "a string or a list of strings", "int": "an integer", "real": "a number",
             "bool": "true or false", "list": f"a {kind}", "asset": "a file or folder", "word": "a word"}
    return names.get(kind.name, f"a {kind.name}")


def _type_help(value: Val, wanted: Type, span: Span) -> str:
    """What to write instead, where the text at hand shows it."""
    written = span.text
    if value.type.name == "string" and wanted.name == "list" and wanted.element == STRING:
        return f"write `[{written}]`"
    if value.type.name == "string" and wanted.name == "word" and written.strip('"').isidentifier():
        return f"write `{written.strip(chr(34))}`, without quotes"
    return f"give {_article(wanted)}"


def _unit_help(value: Val, wanted: Type) -> str:
    if wanted.name == "int" and value.type.name == "real":
        return "write a whole number"
    if value.type.name in ("duration", "size") and wanted.name in UNIT_NAMES:
        return f"write it in one of the units {UNIT_NAMES[wanted.name]}"
    shown = decimal(value.data) if isinstance(value.data, Fraction) else "2"
    example = {"duration": f"{shown}s", "size": f"{shown}MiB"}.get(wanted.name)
    return f"write `{example}`" if example else "write the number without a unit"
