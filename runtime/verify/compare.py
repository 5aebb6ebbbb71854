"""Comparisons of texts with an expected one: exact, trimmed, by tokens, as numbers; never through floats or eval."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

_DECIMAL = re.compile(
    r"([+-]?)(\d{1,1000}|\d{1,3}(?:,\d{3}){1,300})?(?:\.(\d{0,1000}))?(?:[eE]([+-]?\d{1,3}))?", re.ASCII
)
_RATIO = re.compile(r"([+-]?\d{1,1000})\s*/\s*(\d{1,1000})", re.ASCII)


def number(text: str) -> Fraction | None:
    """The exact number that a whole text is: `42`, `-1,234.5`, `1e-3`, `3/4`; None for the rest, nan and inf too."""
    text = text.strip().replace("\N{MINUS SIGN}", "-")
    ratio = _RATIO.fullmatch(text)
    if ratio:
        return Fraction(int(ratio[1]), int(ratio[2])) if int(ratio[2]) else None
    found = _DECIMAL.fullmatch(text)
    if not found or not (found[2] or found[3]):
        return None
    sign, whole, part, exponent = found[1], (found[2] or "0").replace(",", ""), found[3] or "", int(found[4] or 0)
    value = Fraction(int(whole + part)) * Fraction(10) ** (exponent - len(part))
    return -value if sign == "-" else value


def exact(got: str, expected: str, close: Fraction) -> bool:
    """The same characters."""
    return got == expected


def trimmed(got: str, expected: str, close: Fraction) -> bool:
    """The same lines, white space around the text and at line ends aside."""
    return _lines(got) == _lines(expected)


def tokens(got: str, expected: str, close: Fraction) -> bool:
    """The same words in the same order."""
    return got.split() == expected.split()


def numbers(got: str, expected: str, close: Fraction) -> bool:
    """As many words; where the expected one is a number, a number no farther than `close` from it (`2` is `2.0`)."""
    left, right = got.split(), expected.split()
    return len(left) == len(right) and all(_near(a, b, close) for a, b in zip(left, right, strict=True))


COMPARES: Mapping[str, Callable[[str, str, Fraction], bool]] = {
    "exact": exact, "trimmed": trimmed, "tokens": tokens, "number": numbers,
}  # fmt: skip


def _near(got: str, expected: str, close: Fraction) -> bool:
    want = number(expected)
    if want is None:
        return got == expected
    have = number(got)
    return have is not None and abs(have - want) <= close


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]
