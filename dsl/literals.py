"""What literals mean: numbers with units, and the texts of strings."""

from __future__ import annotations

import re
from fractions import Fraction

from guerdon.dsl.tree import Num

DURATIONS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}
"""Milliseconds of one unit."""
SIZES = {
    "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9,
}
"""Bytes of one unit."""
UNITS = (*DURATIONS, *SIZES)
SPELLINGS = {
    "M": "MiB", "m": "min", "mins": "min", "minute": "min", "minutes": "min", "sec": "s", "secs": "s", "second": "s",
    "seconds": "s", "hr": "h", "hour": "h", "hours": "h", "msec": "ms", "millis": "ms", "k": "KiB", "g": "GiB",
    "gi": "GiB", "mi": "MiB", "ki": "KiB", "byte": "B", "bytes": "B",
}
"""How other tools spell units, in lower case, and what the language calls them (`M` and `m` differ)."""

_NUMBER = re.compile(r"([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?([A-Za-z_0-9]*)")
_MAX_DIGITS = 40
_MAX_EXPONENT = 308

_ESCAPE = re.compile(r"\\(u\{[0-9A-Fa-f]{1,6}\}|(?s:.)|$)")
_SIMPLE = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "$": "$"}
ESCAPES = ("\\\\", '\\"', "\\n", "\\t", "\\$", "\\u{1F600}")
"""Every escape there is, as written (the last with any hexadecimal code point)."""


def unit_value(num: Num) -> tuple[str, Fraction]:
    """Kind and base value of a number: ("duration", ms), ("size", bytes) or ("number", value).

    Raises KeyError for a unit that does not exist; the parser lets none through.
    """
    if not num.unit:
        return "number", num.value
    if num.unit in DURATIONS:
        return "duration", num.value * DURATIONS[num.unit]
    return "size", num.value * SIZES[num.unit]


def number(text: str) -> tuple[Fraction, str] | None:
    """Exact value and unit of a written number; None where it has over 40 digits or an exponent over 308."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    whole, part, exponent, unit = found[1], found[2] or "", found[3] or "0", found[4]
    if len(whole) + len(part) > _MAX_DIGITS or len(exponent) > 4 or abs(int(exponent)) > _MAX_EXPONENT:
        return None
    return Fraction(int(whole + part)) * Fraction(10) ** (int(exponent) - len(part)), unit


def dedent(pieces: list[str]) -> list[str]:
    r"""The pieces of a triple-quoted text, between which insertions stand, without their common indentation.

    Drops the line end behind the opening quotes, the blanks before the closing ones, and from every line the
    indentation of the least indented line that is not blank. An insertion counts as text.
    """
    marked = "\0".join(p.replace("\r\n", "\n") for p in pieces)
    lines = marked.split("\n")
    if len(lines) > 1 and not lines[0].strip(" \t"):
        lines = lines[1:]
        first = 0
    else:
        first = 1
    if len(lines) > first and not lines[-1].strip(" \t"):
        lines[-1] = ""
    indented = [line for line in lines[first:] if line.strip(" \t")]
    width = min((len(line) - len(line.lstrip(" \t")) for line in indented), default=0)
    lines[first:] = [_cut(line, width) for line in lines[first:]]
    return "\n".join(lines).split("\0")


def _cut(line: str, width: int) -> str:
    return line[width:] if line[:width].strip(" \t") == "" else line


def unescape(text: str) -> tuple[str, list[tuple[int, str]]]:
    """The text with its escapes replaced, and each escape that does not exist: (offset, as written)."""
    if "\\" not in text:
        return text, []
    bad: list[tuple[int, str]] = []

    def replace(found: re.Match[str]) -> str:
        escape = found[1]
        if escape in _SIMPLE:
            return _SIMPLE[escape]
        if len(escape) > 1 and (code := int(escape[2:-1], 16)) <= 0x10FFFF and not 0xD800 <= code < 0xE000:
            return chr(code)
        bad.append((found.start(), found[0]))
        return found[0]

    return _ESCAPE.sub(replace, text), bad
