"""What the renderers share: harmless text, widths, places and the summary."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from guerdon.dsl.diagnostic import Diagnostic, Severity
from guerdon.dsl.source import Span

TAB = 4
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))


def harmless(text: str) -> str:
    """The text with control, direction and invisible characters shown as `\\u{…}`, tabs as blanks."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(c) for c in text)


def _shown(char: str) -> str:
    if char == "\t":
        return " " * TAB
    if char != " " and unicodedata.category(char) in _INVISIBLE:
        return f"\\u{{{ord(char):x}}}"
    return char


def width(text: str) -> int:
    """Columns that a harmless text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def place(span: Span | None) -> str:
    """`file:line:column`, or the empty string."""
    return "" if span is None else f"{harmless(span.source.name)}:{span.line}:{span.column}"


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """`3 errors, 1 warning`, or the empty string where there is neither."""
    parts = []
    for severity in (Severity.ERROR, Severity.WARNING):
        count = sum(d.severity is severity for d in diagnostics)
        if count:
            parts.append(f"{count} {severity.value}{'s' if count > 1 else ''}")
    return ", ".join(parts)
