"""Text to raw tokens: one pass, linear, and total: every character is a token, blank, or reported."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from guerdon.dsl import diagnostic
from guerdon.dsl.diagnostic import MAX_REPORTS, Diagnostic, Fix, Label
from guerdon.dsl.source import Source, Span
from guerdon.dsl.tokens import KEYWORDS, SYMBOLS, Token

_TOKEN = re.compile(
    r"""
      (?P<BLANK>[ \t\r\ufeff]++)
    | (?P<NEWLINE>\n)
    | (?P<COMMENT>\#[^\n]*+)
    | (?P<RAW>r\"{3}(?:[^"]|"(?!""))*+\"{3}|r"(?!"")[^"\n]*+")
    | (?P<NAME>[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<NUMBER>[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[A-Za-z_0-9]*+)
    | (?P<QUOTE>\"{3}|")
    | (?P<WRONG>:=|&&|\|\||===|=>|=<|<>|\*\*|//[^\n]*+|[‘’']|[“”]|!(?!=)|≤|≥|≠|×|÷|−|…)
    | (?P<SYMBOL>==|!=|<=|>=|\.\.|[()\[\]{},:=.+\-*/<>;])
    | (?P<STRAY>[^\W\d_][\w]*+|.)
    """,
    re.VERBOSE,
)
# Text of a string up to its closing quote, an insertion, or (for `"`) the end of the line.
_TEXT = {
    '"': re.compile(r'(?:[^"\\$\n]++|\\[^\n]|\$(?!\{))*+'),
    '"""': re.compile(r'(?:[^"\\$]++|\\(?s:.)|\$(?!\{)|"(?!""))*+'),
}
_HARMFUL = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u2028-\u202e\u2066-\u2069]+|\r+(?!\n)|(?<!^)\ufeff+"
)
_SINGLE_QUOTED = re.compile(r"[‘’']([^‘’'\"\\$\n]*+)[‘’']")
_SMART_QUOTED = re.compile(r"[“”\"]([^“”\"\\$\n]*+)[“”\"]")
_INSTEAD = {
    ":=": "=", "&&": "and", "||": "or", "===": "==", "=>": ">=", "=<": "<=", "<>": "!=", "**": "*",
    "!": "not",
    "≤": "<=", "≥": ">=", "≠": "!=", "×": "*", "÷": "/", "−": "-", "…": "..",
}

_HINTS = {
    "%": "write a share as a number: `0.5` for 50%",
    "&": "write `and`",
    "|": "write `or`",
    "$": "`${…}` inserts a value inside a string",
}


class _Open:
    """A string that is open: its quote, where it began, and its innermost `${`."""

    __slots__ = ("insert", "quote", "start")

    def __init__(self, quote: str, start: int) -> None:
        self.quote, self.start, self.insert = quote, start, start


class Lexer:
    """Splits one source; `tokens`, `comments` and `diagnostics` are the result of `run`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.tokens: list[Token] = []
        self.comments: list[Token] = []
        self.diagnostics: list[Diagnostic] = []
        self.strings: list[_Open] = []

    def run(self) -> Lexer:
        """Split the whole text."""
        for harmful in _HARMFUL.finditer(self.text):
            self._harmful(harmful)
        position, end, match = 0, len(self.text), _TOKEN.match
        handlers = {group: getattr(self, f"_on_{group.lower()}") for group in _TOKEN.groupindex}
        while position < end:
            found = match(self.text, position)
            assert found is not None and found.lastgroup is not None  # STRAY takes any character
            position = handlers[found.lastgroup](position, found.end())
        if self.strings:
            self._abandon(end)
        return self

    def _error(self, code: str, message: str, span: Span, **parts: Any) -> None:
        if len(self.diagnostics) < MAX_REPORTS:
            self.diagnostics.append(diagnostic.error(code, message, span, **parts))

    def _add(self, kind: str, start: int, end: int) -> int:
        self.tokens.append(Token(kind, start, end))
        return end

    def _on_blank(self, _start: int, end: int) -> int:
        return end

    def _on_newline(self, start: int, end: int) -> int:
        if self.strings:
            return self._abandon(start)
        if self.tokens and self.tokens[-1].kind != "NEWLINE":
            self._add("NEWLINE", start, end)
        return end

    def _on_comment(self, start: int, end: int) -> int:
        self.comments.append(Token("COMMENT", start, end))
        return end

    def _on_raw(self, start: int, end: int) -> int:
        return self._add("STRING", start, end)

    def _on_name(self, start: int, end: int) -> int:
        word = self.text[start:end]
        if word == "r" and self.text.startswith('"', end):
            is_long = self.text.startswith('"""', end)
            return self._unterminated(start, len(self.text) if is_long else self._line_end(end))
        is_word = word in KEYWORDS and not (self.tokens and self.tokens[-1].kind == "DOT")
        return self._add(word.upper() if is_word else "NAME", start, end)

    def _on_number(self, start: int, end: int) -> int:
        return self._add("NUMBER", start, end)

    def _on_symbol(self, start: int, end: int) -> int:
        if self.strings and self.text[start] == "}":
            return self._string_goes_on(start, end)
        return self._add(SYMBOLS[self.text[start:end]], start, end)

    # Strings ------------------------------------------------------------------------------------

    def _on_quote(self, start: int, end: int) -> int:
        quote = self.text[start:end]
        if quote == '"""' and self.strings and self.strings[0].quote == quote:
            return self._abandon(start)  # `"""${x"""`: the quotes were meant to close the outer string
        text_end = self._text_end(quote, end)
        if self.text.startswith(quote, text_end):
            return self._add("STRING", start, text_end + len(quote))
        if self.text.startswith("${", text_end):
            self.strings.append(_Open(quote, start))
            self.strings[-1].insert = text_end
            return self._add("STR_HEAD", start, text_end + 2)
        return self._unterminated(start, text_end)

    def _text_end(self, quote: str, start: int) -> int:
        found = _TEXT[quote].match(self.text, start)
        assert found is not None  # it matches the empty text
        return found.end()

    def _string_goes_on(self, start: int, end: int) -> int:
        quote = self.strings[-1].quote
        text_end = self._text_end(quote, end)
        if self.text.startswith("${", text_end):
            self.strings[-1].insert = text_end
            return self._add("STR_MID", start, text_end + 2)
        opened = self.strings.pop()
        if self.text.startswith(quote, text_end):
            return self._add("STR_TAIL", start, text_end + len(quote))
        self._report_unterminated(opened.start, text_end)
        return self._add("STR_TAIL", start, text_end)

    def _unterminated(self, start: int, end: int) -> int:
        if self.strings and self.strings[-1].quote == '"':
            return self._abandon(end)  # `"${x"`: the quote was meant to close the outer string
        if not self.text.startswith(('"""', 'r"""'), start):
            end = self._before_closers(start, end)
        self._report_unterminated(start, end)
        return self._add("STRING", start, end)

    def _report_unterminated(self, start: int, end: int) -> None:
        quote = '"""' if self.text.startswith(('"""', 'r"""'), start) else '"'
        shown = end if quote == '"' else start + 3
        self._error(
            "T002", "this string is never closed", Span(self.source, start, shown), label="opened here",
            help=f"close it with `{quote}`" + ('; text of several lines stands in `"""`' if quote == '"' else ""))

    def _before_closers(self, start: int, end: int) -> int:
        """Where a string that misses its quote should have ended: `f("x) {` is more likely `f("x") {`."""
        kept = self.text[start + 1 : end].rstrip(" \t\r)]},;{")
        return start + 1 + len(kept)

    def _abandon(self, at: int) -> int:
        """Report the outermost `${` that is still open, close what is in it, and go on behind it."""
        outer = self.strings[0]
        self._error(
            "T003", "`${` is never closed", Span(self.source, outer.insert, outer.insert + 2),
            label="opened here",
            labels=(Label(Span(self.source, at, at), "expected `}` before here"),),
            help="write `${name}`; for the two characters themselves write `\\${`")
        while len(self.strings) > 1:
            self.strings.pop()
            self._add("STR_TAIL", at, at)
        if outer.quote == '"""' and at < len(self.text):
            return self._string_goes_on(at, at)
        self.strings.pop()
        return self._add("STR_TAIL", at, at)

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end

    # Characters that have no meaning ------------------------------------------------------------

    def _harmful(self, found: re.Match[str]) -> None:
        code = f"U+{ord(found[0][0]):04X}"
        self._error(
            "T005", f"the control character {code} may not stand in a file", Span(self.source, *found.span()),
            help=f"delete it, or write `\\u{{{ord(found[0][0]):X}}}` inside a string")

    def _on_wrong(self, start: int, end: int) -> int:
        found = self.text[start:end]
        if found.startswith("//"):
            self._stray(start, start + 2, "comments begin with `#`", "#")
            return end
        if found in "‘’'":
            return self._quoted(_SINGLE_QUOTED.match(self.text, start), start)
        if found in "“”":
            return self._quoted(_SMART_QUOTED.match(self.text, start), start)
        instead = _INSTEAD[found]
        self._stray(start, end, f"write `{instead}`", instead)
        return self._add(SYMBOLS.get(instead, instead.upper()), start, end)

    def _quoted(self, found: re.Match[str] | None, start: int) -> int:
        if found is None:
            self._stray(start, start + 1, 'strings stand in `"`')
            return start + 1
        self._stray(start, found.end(), 'strings stand in `"`', f'"{found[1]}"')
        return self._add("STRING", start, found.end())

    def _on_stray(self, start: int, end: int) -> int:
        if harmful := _HARMFUL.match(self.text, start):  # reported already
            return harmful.end()
        if self.text[start].isalpha():
            if self.tokens and self.tokens[-1].kind == "NAME" and self.tokens[-1].end == start:
                start = self.tokens.pop().start
            self._stray(start, end, "names are made of a-z, A-Z, 0-9 and `_`; other letters need a string")
            return self._add("NAME", start, end)
        self._stray(start, end, _HINTS.get(self.text[start], "delete it, or put it into a string"))
        return end

    def _stray(self, start: int, end: int, help: str, replacement: str | None = None) -> None:
        span = Span(self.source, start, end)
        text = self.text[start:end]
        if not text.isprintable() or text.isspace():
            text = f"U+{ord(text[0]):04X} {unicodedata.name(text[0], '').lower()}".strip()
        fix = None if replacement is None else Fix(span, replacement)
        self._error(
            "T005", f"`{text}` has no meaning here", span, help=help, fix=fix)
