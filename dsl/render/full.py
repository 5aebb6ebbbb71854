"""For people: message, place, source lines with carets, notes and help, in rustc's manner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from guerdon.dsl.diagnostic import Diagnostic, Severity
from guerdon.dsl.render.text import harmless, place, summary, width
from guerdon.dsl.source import Source, Span

_CLIP = 120
_COLOURS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.NOTE: "1;36"}
_BLUE, _BOLD = "1;34", "1"


def render(diagnostics: Sequence[Diagnostic], *, colour: bool = False) -> str:
    """Every diagnostic as a block, and the summary; ANSI colours only if asked for."""
    blocks = [_Block(d, colour).text() for d in diagnostics]
    total = summary(diagnostics)
    return "\n".join([*blocks, *([f"{total}\n"] if total else [])])


@dataclass(frozen=True, slots=True)
class _Mark:
    span: Span
    text: str
    sign: str


class _Block:
    """One diagnostic being written."""

    def __init__(self, found: Diagnostic, colour: bool) -> None:
        self.found = found
        self.colour = colour
        self.marks = [] if found.span is None else [_Mark(found.span, found.label, "^")]
        self.marks += [_Mark(item.span, item.text, "-") for item in found.labels]
        last = max((m.span.line for m in self.marks), default=0)
        self.gutter = len(str(last))

    def text(self) -> str:
        """The whole block, with a line end after each line."""
        found = self.found
        head = self._paint(f"{found.severity.value}[{found.code}]", _COLOURS[found.severity])
        lines = [head + self._paint(f": {harmless(found.message)}", _BOLD)]
        for number, source in enumerate(self._sources()):
            marks = [m for m in self.marks if m.span.source is source]
            arrow = "-->" if number == 0 else ":::"
            lines.append(" " * self.gutter + self._paint(arrow, _BLUE) + " " + place(marks[0].span))
            lines += self._snippet(source, marks)
        trailer = " " * self.gutter + " " + self._paint("=", _BLUE)
        lines += [f"{trailer} note: {harmless(note)}" for note in found.notes]
        if found.help:
            lines.append(f"{trailer} help: {harmless(found.help)}")
        return "\n".join(lines) + "\n"

    def _sources(self) -> list[Source]:
        seen: list[Source] = []
        for mark in self.marks:
            if all(mark.span.source is not s for s in seen):
                seen.append(mark.span.source)
        return seen

    def _snippet(self, source: Source, marks: list[_Mark]) -> list[str]:
        bar = self._paint("|", _BLUE)
        lines = [f"{' ' * self.gutter} {bar}"]
        before = 0
        for number in sorted({m.span.line for m in marks}):
            if before and number > before + 1:
                lines.append(self._paint("...", _BLUE))
            on_line = sorted((m for m in marks if m.span.line == number), key=lambda m: m.span.start)
            offset, text = _clip(source.line(number), on_line)
            shown = self._paint(str(number).rjust(self.gutter), _BLUE)
            lines.append(f"{shown} {bar} {harmless(text)}".rstrip())
            lines += [f"{' ' * self.gutter} {bar} {self._underline(mark, text, offset)}" for mark in on_line]
            before = number
        return lines

    def _underline(self, mark: _Mark, text: str, offset: int) -> str:
        start = max(0, mark.span.column - 1 - offset)
        length = max(0, min(mark.span.end - mark.span.start, len(text) - start))
        blank = " " * width(harmless(text[:start]))
        signs = mark.sign * max(1, width(harmless(text[start : start + length])))
        label = f" {harmless(mark.text)}" if mark.text else ""
        main = mark.sign == "^"
        return blank + self._paint(signs + label, _COLOURS[self.found.severity] if main else _BLUE)

    def _paint(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour and text else text


def _clip(line: str, marks: list[_Mark]) -> tuple[int, str]:
    """A window of a long line around its first mark, and its offset (an ellipsis counted in)."""
    if len(line) <= _CLIP:
        return 0, line
    first = marks[0].span.column - 1
    start = max(0, min(first - _CLIP // 4, len(line) - _CLIP))
    end = start + _CLIP
    text = line[start:end]
    if start:
        text = "…" + text[1:]
    if end < len(line):
        text = text[:-1] + "…"
    return start, text
