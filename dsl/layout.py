"""Raw tokens to the parser's: line ends become separators, and brackets are made to match.

What the parser gets is always balanced, so an unclosed bracket is one report here and none there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from guerdon.dsl import diagnostic
from guerdon.dsl.diagnostic import MAX_REPORTS, Diagnostic, Fix, Label
from guerdon.dsl.source import Source, Span
from guerdon.dsl.tokens import CLOSERS, INFIX, KEYWORDS, OPENERS, Token, called

MAX_DEPTH = 100
"""Brackets and insertions within each other: far above any real file, far below Python's recursion limit."""

_NOT_BEFORE = INFIX | {"LBRACE"}
_TOP_WORDS = frozenset(
    "edition import dataset environment verifier reward task weight kind tool image budget".split()
)
_STARTS_STATEMENT = frozenset({"EQUAL", "COLON", "NAME", "STRING", "STR_HEAD", "NUMBER", "LBRACE"})
_MAP_LIKE = frozenset({"LPAR", "LSQB", "COMMA", "EQUAL", "COLON"})


@dataclass(slots=True)
class _Open:
    token: Token
    indent: int


class Layout:
    """Lays out the tokens of one source; `tokens` and `diagnostics` are the result of `run`."""

    def __init__(self, source: Source, raw: list[Token]) -> None:
        self.source = source
        self.raw = raw
        self.tokens: list[Token] = []
        self.diagnostics: list[Diagnostic] = []
        self.stack: list[_Open] = []
        self.indent = 0
        self.first = True
        self.repairs = _leaves_brace_open(raw)

    def run(self) -> Layout:
        """Lay out all tokens; always ends with `SEP` (unless empty) and `$END`."""
        end = len(self.source.text)
        for index, token in enumerate(self.raw):
            if token.kind == "NEWLINE":
                self._line_end(index, token)
                self.first = True
                continue
            if self.first:
                self._line_start(index, token)
            if len(self.stack) >= MAX_DEPTH and (token.kind in OPENERS or token.kind == "STR_HEAD"):
                self._too_deep(token)
                end = token.start
                break
            self._token(index, token)
        while self.stack:
            self._close_top(end)
        self._separate(end, end)
        self.tokens.append(Token("$END", end, end))
        return self

    # One token ----------------------------------------------------------------------------------

    def _token(self, index: int, token: Token) -> None:
        kind = token.kind
        if kind == "SEMI":
            self._close_brackets(token.start)
            self._separate(token.start, token.end)
        elif kind in CLOSERS:
            self._closer(token)
        elif kind in OPENERS or kind == "STR_HEAD":
            if kind == "LBRACE" and self._in_bracket() and self._before() not in _MAP_LIKE:
                self._close_brackets(token.start)
            self.stack.append(_Open(token, self.indent))
            self.tokens.append(token)
        else:
            if kind in ("STR_MID", "STR_TAIL"):
                self._back_to_string(token)
            self.tokens.append(token)

    def _closer(self, token: Token) -> None:
        opener = CLOSERS[token.kind]
        if token.kind == "RBRACE":
            self._close_brackets(token.start)
        elif self._in_bracket() and self.stack[-1].token.kind != opener:
            if opener not in self._bracket_kinds():
                self._mismatch(token)
                return
            while self.stack[-1].token.kind != opener:
                self._close_top(token.start)
        if not self.stack or self.stack[-1].token.kind != opener:
            self._stray_closer(token)
            return
        if token.kind == "RBRACE":
            self._separate(token.start, token.start)
        self.stack.pop()
        self.tokens.append(token)

    def _back_to_string(self, token: Token) -> None:
        """Close what was opened inside `${…}` and not closed there."""
        while self.stack and self.stack[-1].token.kind != "STR_HEAD":
            self._close_top(token.start)
        if token.kind == "STR_TAIL" and self.stack:
            self.stack.pop()

    # Lines --------------------------------------------------------------------------------------

    def _line_end(self, index: int, token: Token) -> None:
        after = self.raw[index + 1].kind if index + 1 < len(self.raw) else "$END"
        before = self._before()
        if before in INFIX and (self._in_bracket() or not self._must_begin(index + 1)):
            return
        if after in _NOT_BEFORE and not self._is_key(index + 1):
            return
        if self._in_bracket():
            if before in OPENERS or not self._begins_statement(index + 1):
                return
            self._close_brackets(token.start)
        self._separate(token.start, token.end)

    def _must_begin(self, index: int) -> bool:
        """Whether a raw token can only begin a statement, so that an operator before it is left dangling."""
        kinds = [t.kind for t in self.raw[index : index + 2]]
        if not kinds or kinds[0] in ("ENSURE", "FACT", "RBRACE"):
            return True
        return kinds[0] == "NAME" and kinds[1:] in (["EQUAL"], ["NAME"], ["STRING"])

    def _is_key(self, index: int) -> bool:
        """Whether a reserved word stands where a key should: `with = 3` continues no line."""
        kinds = [t.kind for t in self.raw[index : index + 2]]
        return kinds[0].lower() in KEYWORDS and kinds[1:] in (["EQUAL"], ["COLON"], ["LBRACE"])

    def _begins_statement(self, index: int) -> bool:
        """Whether the line at a raw token looks like a statement, though a bracket is open."""
        kinds = [t.kind for t in self.raw[index : index + 2]]
        if not kinds or kinds[0] in ("ENSURE", "FACT", "RBRACE"):
            return True
        return kinds[0] == "NAME" and len(kinds) > 1 and kinds[1] in _STARTS_STATEMENT

    def _line_start(self, index: int, token: Token) -> None:
        self.first = False
        line_start = self.source.text.rfind("\n", 0, token.start) + 1
        self.indent = token.start - line_start
        if not self.repairs or self._in_bracket() or not self.stack:
            return
        if token.kind == "RBRACE":
            if any(o.indent == self.indent for o in self.stack):
                while self.stack[-1].indent > self.indent:
                    self._close_top(token.start)
        elif self.indent == 0 and token.kind == "NAME":
            word = self.source.text[token.start : token.end]
            after = self.raw[index + 1].kind if index + 1 < len(self.raw) else "$END"
            if word in _TOP_WORDS and after in ("NAME", "STRING", "NUMBER"):
                while self.stack:
                    self._close_top(token.start)
                self._separate(token.start, token.start)

    def _separate(self, start: int, end: int) -> None:
        if self.tokens and self.tokens[-1].kind not in ("SEP", "LBRACE"):
            self.tokens.append(Token("SEP", start, end))

    # Brackets -----------------------------------------------------------------------------------

    def _before(self) -> str:
        return self.tokens[-1].kind if self.tokens else "SEP"

    def _in_bracket(self) -> bool:
        return bool(self.stack) and self.stack[-1].token.kind in ("LPAR", "LSQB")

    def _bracket_kinds(self) -> set[str]:
        kinds = set()
        for opened in reversed(self.stack):
            if opened.token.kind not in ("LPAR", "LSQB"):
                break
            kinds.add(opened.token.kind)
        return kinds

    def _close_brackets(self, at: int) -> None:
        while self._in_bracket():
            self._close_top(at)

    def _close_top(self, at: int) -> None:
        """Report the innermost open bracket and close it."""
        opened = self.stack.pop().token
        if opened.kind == "STR_HEAD":  # the lexer has reported it
            self.tokens.append(Token("STR_TAIL", at, at))
            return
        if opened.kind == "LBRACE":
            self._separate(at, at)
        closer = called(OPENERS[opened.kind])
        self._error(
            "T003", f"{called(opened.kind)} is never closed", Span(self.source, opened.start, opened.end),
            label="opened here",
            labels=(Label(Span(self.source, at, at), f"expected {closer} before here"),),
            help=f"add {closer} where it ends")
        self.tokens.append(Token(OPENERS[opened.kind], at, at))

    def _error(self, code: str, message: str, span: Span, **parts: Any) -> None:
        if len(self.diagnostics) < MAX_REPORTS:
            self.diagnostics.append(diagnostic.error(code, message, span, **parts))

    def _stray_closer(self, token: Token) -> None:
        span = Span(self.source, token.start, token.end)
        self._error(
            "T003", f"{called(token.kind)} closes nothing", span,
            help=f"delete it, or add {called(CLOSERS[token.kind])} where it should begin", fix=Fix(span, ""))

    def _mismatch(self, token: Token) -> None:
        opened = self.stack.pop().token
        span, closer = Span(self.source, token.start, token.end), OPENERS[opened.kind]
        self._error(
            "T003", f"{called(opened.kind)} is closed by {called(token.kind)}", span,
            labels=(Label(Span(self.source, opened.start, opened.end), "opened here"),),
            help=f"write {called(closer)}", fix=Fix(span, called(closer).strip("`")))
        self.tokens.append(Token(closer, token.start, token.end))

    def _too_deep(self, token: Token) -> None:
        self._error(
            "T006", f"nested more than {MAX_DEPTH} deep", Span(self.source, token.start, token.end),
            notes=("the rest of the file was not read",), help="split it into several statements")
        while self.stack:  # without a report for each: the depth is the one mistake
            opened = self.stack.pop().token
            if opened.kind == "LBRACE":
                self._separate(opened.start, opened.start)
            self.tokens.append(Token(OPENERS.get(opened.kind, "STR_TAIL"), opened.start, opened.start))


def _leaves_brace_open(raw: list[Token]) -> bool:
    depth = 0
    for token in raw:
        if token.kind == "LBRACE":
            depth += 1
        elif token.kind == "RBRACE" and depth:
            depth -= 1
    return depth > 0
