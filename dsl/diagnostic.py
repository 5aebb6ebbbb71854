"""The one model of everything the compiler has to say: errors are data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from guerdon.dsl.source import Span


class Severity(StrEnum):
    """How much a diagnostic weighs: only errors (and warnings under --strict) fail a check."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


MAX_REPORTS = 200
"""Reports that a pass over one text makes: a file of noise must not give one for each character."""


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that helps to understand the first."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A replacement that a machine may apply."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: a stable code, what is wrong, where, and what to do about it."""

    code: str
    severity: Severity
    message: str
    span: Span | None
    label: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    fix: Fix | None = None

    def sort_key(self) -> tuple[str, int, str, str]:
        """File, offset, code, message: the order in which a person reads them."""
        if self.span is None:
            return ("", -1, self.code, self.message)
        return (self.span.source.name, self.span.start, self.code, self.message)


def error(code: str, message: str, span: Span | None, *, label: str = "", help: str = "",
          labels: tuple[Label, ...] = (), notes: tuple[str, ...] = (), fix: Fix | None = None) -> Diagnostic:
    """Make an error."""
    return Diagnostic(code, Severity.ERROR, message, span, label, labels, notes, help, fix)


def warning(code: str, message: str, span: Span | None, *, label: str = "", help: str = "",
            labels: tuple[Label, ...] = (), notes: tuple[str, ...] = (),
            fix: Fix | None = None) -> Diagnostic:
    """Make a warning."""
    return Diagnostic(code, Severity.WARNING, message, span, label, labels, notes, help, fix)


def note(code: str, message: str, span: Span | None, *, label: str = "", help: str = "",
         labels: tuple[Label, ...] = (), notes: tuple[str, ...] = (), fix: Fix | None = None) -> Diagnostic:
    """Make a note."""
    return Diagnostic(code, Severity.NOTE, message, span, label, labels, notes, help, fix)
