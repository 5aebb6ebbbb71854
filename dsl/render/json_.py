"""JSON: one object (`json`) or one line for each diagnostic (`jsonl`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from guerdon.dsl.diagnostic import Diagnostic, Severity
from guerdon.dsl.source import Span


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """`{"diagnostics": […], "errors": n, "warnings": n}`."""
    whole = {
        "diagnostics": [as_dict(d) for d in diagnostics],
        "errors": sum(d.severity is Severity.ERROR for d in diagnostics),
        "warnings": sum(d.severity is Severity.WARNING for d in diagnostics),
    }
    return json.dumps(whole, indent=2) + "\n"


def render_lines(diagnostics: Sequence[Diagnostic]) -> str:
    """One object for each diagnostic, each on its line."""
    return "".join(json.dumps(as_dict(d)) + "\n" for d in diagnostics)


def as_dict(found: Diagnostic) -> dict[str, Any]:
    """One diagnostic; lines and columns from 1, columns in characters; absent parts null or empty."""
    return {
        "code": found.code,
        "severity": found.severity.value,
        "message": found.message,
        "location": _span(found.span),
        "label": found.label,
        "labels": [{"location": _span(item.span), "text": item.text} for item in found.labels],
        "notes": list(found.notes),
        "help": found.help,
        "fix": found.fix and {"location": _span(found.fix.span), "replacement": found.fix.replacement},
    }


def _span(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {"file": span.source.name, "line": line, "column": column, "end_line": end_line,
            "end_column": end_column, "start": span.start, "end": span.end}
