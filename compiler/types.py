"""Types of the language: names, ranges, units, the `secret` label and the direction of a signal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.literals import unit_value
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Expr, Num, Range, TypeExpr, Unary

SCALARS = ("bool", "int", "real", "string", "duration", "size", "path", "image")
SETTING_TYPES = ("any", "word", "strings", "source", "expectation", "command")
"""Types that only kinds and tools of the std library use for their settings and parameters."""
MODIFIERS = ("secret", "up", "down")


@dataclass(frozen=True, slots=True)
class Type:
    """A type; `low` and `high` bound numbers (base units: milliseconds, bytes), None meaning unbounded."""

    name: str
    low: Fraction | None = None
    high: Fraction | None = None
    element: Type | None = None
    secret: bool = False
    direction: str = ""

    @property
    def is_number(self) -> bool:
        return self.name in ("int", "real", "duration", "size")

    def __str__(self) -> str:
        text = f"list[{self.element}]" if self.element else self.name
        if self.low is not None and self.high is not None:
            text += f" in {decimal(self.low)}..{decimal(self.high)}"
        return text


BOOL = Type("bool")
STRING = Type("string")
BROKEN = Type("?")
"""Stands for what was already reported: anything goes, so that one mistake makes one error."""


def sane(value: Fraction) -> bool:
    """Whether a number has few enough digits to be written down."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) < 3400


def decimal(value: Fraction) -> str:
    """A rational as a person writes it: a finite decimal where there is one."""
    if not sane(value):
        return "a number of over a thousand digits"
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    if denominator != 1:
        return str(value)
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    whole = abs(value.numerator * 10**digits // value.denominator)
    text = f"{whole:0{digits + 1}d}"
    text = f"{text[:-digits]}.{text[-digits:]}" if digits else text
    return f"-{text}" if value < 0 else text


def constant(expr: Expr) -> tuple[str, Fraction] | None:
    """The unit kind (empty for a plain number) and value of a literal, a leading minus allowed; else None."""
    if isinstance(expr, Unary) and expr.op == "-":
        inner = constant(expr.operand)
        return (inner[0], -inner[1]) if inner else None
    if not isinstance(expr, Num):
        return None
    kind, value = unit_value(expr)
    return ("" if kind == "number" else kind), value


def read_range(written: Range, found: list[Diagnostic]) -> tuple[Fraction | None, Fraction | None]:
    """The ends of `a..b`; reports ends that are no literals and ranges that hold nothing."""
    low, high = constant(written.low), constant(written.high)
    if low is None or high is None:
        found.append(error("T203", "the ends of a range are literal numbers", written.span,
                           help="write for example `0..1`"))
        return None, None
    if low[0] != high[0]:
        found.append(error("T202", f"the ends of this range have different units ({low[0] or 'none'} and "
                           f"{high[0] or 'none'})", written.span, help="give both ends the same unit"))
        return None, None
    if not (sane(low[1]) and sane(high[1])):
        found.append(error("T203", "the ends of this range have too many digits", written.span, help="shorten them"))
        return None, None
    if low[1] > high[1]:
        found.append(error("T203", f"this range holds nothing: {decimal(low[1])} is above {decimal(high[1])}",
                           written.span, help=f"write {decimal(high[1])}..{decimal(low[1])}"))
        return high[1], low[1]
    return low[1], high[1]


def read_type(written: TypeExpr, found: list[Diagnostic], *, extra: tuple[str, ...] = ()) -> Type:
    """The type that was written; unknown names give BROKEN and an error."""
    name = written.name.text
    if name not in (*SCALARS, "list", *extra):
        guess = did_you_mean(name, (*SCALARS, "list", *extra))
        found.append(error("T101", f"there is no type `{name}`", written.name.span,
                           help=f"did you mean `{guess}`?" if guess else
                           "the types are " + ", ".join((*SCALARS, "list[…]"))))
        return BROKEN
    result = Type(name)
    if written.element is not None:
        if name != "list":
            found.append(error("T201", f"`{name}` takes no element type", written.span,
                               help=f"write `{name}` or `list[{name}]`"))
        result = replace(result, element=read_type(written.element, found, extra=extra))
    elif name == "list":
        found.append(error("T201", "a list needs the type of its elements", written.span,
                           help="write for example `list[string]`"))
        return BROKEN
    if written.range is not None:
        if not result.is_number:
            found.append(error("T201", f"`{name}` has no range", written.range.span,
                               help="only int, real, duration and size take `in a..b`"))
        else:
            low, high = read_range(written.range, found)
            if low is None or high is None:
                return BROKEN
            if name == "int" and (low.denominator != 1 or high.denominator != 1):
                found.append(error("T203", "the ends of an int's range are integers", written.range.span,
                                   help="write whole numbers, or make it a real"))
                return BROKEN
            result = replace(result, low=low, high=high)
    return _with_modifiers(result, written, found)


def _with_modifiers(result: Type, written: TypeExpr, found: list[Diagnostic]) -> Type:
    for word in written.modifiers:
        if word.text not in MODIFIERS:
            guess = did_you_mean(word.text, MODIFIERS)
            found.append(error("T101", f"there is no modifier `{word.text}`", word.span,
                               help=f"did you mean `{guess}`?" if guess else "the modifiers are secret, up, down"))
        elif word.text == "secret":
            result = replace(result, secret=True)
        else:
            result = replace(result, direction=word.text)
    return result
