"""One line each: `file:line:column: error[T201]: message`."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon.dsl.diagnostic import Diagnostic
from guerdon.dsl.render.text import harmless, place, summary


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """One line for each diagnostic, and the summary."""
    lines = [line(d) for d in diagnostics]
    total = summary(diagnostics)
    return "".join(f"{text}\n" for text in (*lines, total) if text)


def line(found: Diagnostic) -> str:
    """One diagnostic on one line."""
    at = place(found.span)
    return f"{at}{': ' if at else ''}{found.severity.value}[{found.code}]: {harmless(found.message)}"
