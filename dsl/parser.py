"""Source to tree: `parse` takes any text and always gives a tree, with all mistakes that it found."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

from guerdon.dsl import diagnostic
from guerdon.dsl.build import Builder
from guerdon.dsl.diagnostic import MAX_REPORTS, Diagnostic
from guerdon.dsl.lalr import Automaton
from guerdon.dsl.layout import Layout
from guerdon.dsl.lexer import Lexer
from guerdon.dsl.source import Source
from guerdon.dsl.tokens import Token
from guerdon.dsl.tree import File, Item
from guerdon.dsl.unexpected import unexpected

MAX_BYTES = 16 << 20
"""The largest file that is read."""


def read(path: Path | str, name: str) -> Source | Diagnostic:
    """Read a file, known to people as `name`; T007: too large or not UTF-8, T008: unreadable."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why)
        return diagnostic.error("T008", f"{name} cannot be read: {reason.lower()}", None,
                                help="check the path and its permissions")
    if len(data) > MAX_BYTES:
        return diagnostic.error("T007", f"{name} is larger than {MAX_BYTES >> 20} MiB", None,
                                help="move its data into files beside it: `dataset x = jsonl(\"x.jsonl\")`")
    try:
        return Source(name, data.decode("utf-8"))
    except UnicodeDecodeError as why:
        line = data.count(b"\n", 0, why.start) + 1
        message = f"{name} is not UTF-8: byte 0x{data[why.start]:02X} in line {line}"
        return diagnostic.error("T007", message, None, help="save it as UTF-8")


def parse(source: Source) -> tuple[File, tuple[Diagnostic, ...]]:
    """Parse a text: the tree of all statements that could be read, and all mistakes in order. Never raises."""
    lexed = Lexer(source).run()
    laid = Layout(source, lexed.tokens).run()
    lexical = sorted([*lexed.diagnostics, *laid.diagnostics], key=Diagnostic.sort_key)
    parser = _Parser(source, laid.tokens, lexical)
    items = parser.run()
    found = sorted([*lexical, *parser.diagnostics, *parser.builder.diagnostics], key=Diagnostic.sort_key)
    if len(found) > MAX_REPORTS:
        found = found[:MAX_REPORTS]
        found[-1] = replace(found[-1], notes=(*found[-1].notes, "more mistakes follow: they are not shown"))
    return File(source, tuple(items)), tuple(found)


class _Parser:
    """Feeds the automaton, and after a mistake goes on with the next statement."""

    def __init__(self, source: Source, tokens: list[Token], lexical: list[Diagnostic]) -> None:
        self.source = source
        self.tokens = tokens
        self.builder = Builder(source)
        self.automaton = Automaton(self.builder)
        self.diagnostics: list[Diagnostic] = []
        self.reported = [d.span.start for d in lexical if d.span is not None]
        self.blocks = [1]
        """Sizes of the state stack where the statements of each open block begin."""
        self.begin = 0
        """Index of the first token of the current statement."""
        self.silent = False
        """Whether the current statement is the rest of one that was reported."""

    def run(self) -> list[Item]:
        """All statements of the file."""
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            if self.automaton.feed(token):
                self._taken(index, token.kind)
                index += 1
            else:
                index = self._recover(index)
        return self.automaton.result or []

    def _taken(self, index: int, kind: str) -> None:
        if kind == "LBRACE":
            self.blocks.append(len(self.automaton.states))
        elif kind == "RBRACE":
            self.blocks.pop()
        elif kind == "SEP":
            self.silent = False
        if kind in ("LBRACE", "SEP"):
            self.begin = index + 1

    def _recover(self, index: int) -> int:
        """Report a token that does not fit, and go to where a statement can begin again."""
        token = self.tokens[index]
        if token.kind == "$END":  # cannot happen in a laid out file; never loop on it
            return len(self.tokens)
        self._report(index)
        automaton = self.automaton
        if token.kind in ("NAME", "STRING", "ENSURE", "FACT") and automaton.accepts("SEP"):
            automaton.feed(Token("SEP", token.start, token.start))
            self.begin, self.silent = index, True
            return index
        at, is_block = self._skip(index)
        self._forget_statement()
        if is_block:
            automaton.feed(self.tokens[self.begin])
            return at
        if self.tokens[at].kind == "SEP":
            at += 1
        self.begin, self.silent = at, False
        return at

    def _forget_statement(self) -> None:
        self.automaton.truncate(self.blocks[-1] + 1)

    def _skip(self, index: int) -> tuple[int, bool]:
        """The next separator or closing brace of this block, or the brace that opens the statement's body."""
        depth = brackets = 0
        may_have_body = self.tokens[self.begin].kind == "NAME" and self.begin < index
        for at in range(index, len(self.tokens)):
            kind = self.tokens[at].kind
            if kind == "LBRACE":
                if depth == 0 and brackets <= 0 and may_have_body and at > index:
                    return at, True
                depth += 1
            elif kind == "RBRACE":
                if depth == 0:
                    return at, False
                depth -= 1
            elif kind in ("LPAR", "LSQB"):
                brackets += 1
            elif kind in ("RPAR", "RSQB"):
                brackets -= 1
            elif kind in ("SEP", "$END") and depth == 0:
                return at, False
        return len(self.tokens) - 1, False

    def _report(self, index: int) -> None:
        """Report the token, unless the lexer, the layout or this parser has reported this statement."""
        begin = self.tokens[min(self.begin, index)].start
        line_end = self.source.text.find("\n", self.tokens[index].start)
        end = len(self.source.text) if line_end < 0 else line_end
        if self.silent or len(self.diagnostics) >= MAX_REPORTS:
            return
        at = bisect_left(self.reported, begin)
        if at < len(self.reported) and self.reported[at] <= end:
            return
        self.diagnostics.append(unexpected(self.source, self.tokens, index, self.automaton.expected()))
