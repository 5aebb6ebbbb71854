"""T001 in words: what was expected, after what, what stands there, and what to do about it."""

from __future__ import annotations

from guerdon.dsl import diagnostic
from guerdon.dsl.diagnostic import Diagnostic, Fix
from guerdon.dsl.source import Source, Span
from guerdon.dsl.tokens import KEYWORDS, OPERATORS, VALUES, Token, called

_SHOWN = 4
_CLOSERS = ("RPAR", "RSQB", "RBRACE", "STR_TAIL")
_ORDER = ("NAME", "NUMBER", "EQUAL", "COLON", "SEP", "COMMA", *_CLOSERS, "LBRACE")
_COMPARES = frozenset("EQ NE LT LE GT GE".split())


def unexpected(source: Source, tokens: list[Token], index: int, expected: frozenset[str]) -> Diagnostic:
    """The report of the token at an index, where one of `expected` would have fitted."""
    token, after = tokens[index], ""
    if index and tokens[index - 1].kind not in ("SEP", "LBRACE"):
        after = f" after {_text(source, tokens[index - 1])}"
    found = _found(source, token)
    help, replacement = _help(source, tokens, index, expected)
    span = Span(source, token.start, token.end)
    return diagnostic.error(
        "T001", f"expected {describe(expected)}{after}, found {found}", span, help=help,
        fix=None if replacement is None else Fix(span, replacement))


def describe(expected: frozenset[str]) -> str:
    """The expected set for people: groups first, then single tokens, at most four."""
    rest, words = set(expected), []
    if {"MINUS", "STRING"} <= rest:
        words.append("a value")
        rest -= VALUES
    elif {"NUMBER", "STRING"} <= rest:  # behind the first word of a statement
        words.append("a name")
        rest -= VALUES
    elif {"ENSURE", "FACT"} <= rest:
        return "a statement"
    if {"STRING", "STR_HEAD"} <= rest:
        words.append("a string")
        rest -= {"STRING", "STR_HEAD"}
    ordered = [k for k in _ORDER if k in rest]
    operators = rest & OPERATORS
    others = sorted(rest - set(ordered) - (OPERATORS if len(operators) > 3 else set()))
    words += [called(k) for k in (*ordered, *others)]
    words = list(dict.fromkeys(words))[: _SHOWN if len(operators) <= 3 else _SHOWN - 1]
    if len(operators) > 3:
        words.append("an operator")
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1] if words else "nothing"


def _text(source: Source, token: Token) -> str:
    text = source.text[token.start : token.end]
    if token.kind in ("STRING", "STR_HEAD", "STR_MID", "STR_TAIL"):
        return "the string" if token.kind in ("STRING", "STR_TAIL") else "`${`"
    return f"`{text}`" if text else called(token.kind)


def _found(source: Source, token: Token) -> str:
    if token.kind in ("STR_MID", "STR_TAIL"):
        return "`}`"
    if token.kind != "SEP":
        return "a string" if token.kind in ("STRING", "STR_HEAD") else _text(source, token)
    following = source.text[token.start : token.start + 1]
    if following in ("}", ";"):
        return f"`{following}`"
    return "the end of the line" if following else "the end of the file"


def _help(source: Source, tokens: list[Token], index: int, expected: frozenset[str]) -> tuple[str, str | None]:
    """What to do, and what to write instead of the token where that is sure."""
    token = tokens[index]
    before = tokens[index - 1] if index else Token("SEP", 0, 0)
    if token.kind == "EQUAL" and "EQ" in expected:
        return "`=` sets, `==` compares", "=="
    if token.kind == "COMMA" and "SEP" in expected:
        return "statements are separated by a line end or `;`", ";"
    if token.kind == "MINUS" and before.kind == "NAME" and before.end == token.start and "EQ" not in expected:
        return "names have no `-`: write `_`", "_"
    if token.kind in _COMPARES and "AND" in expected:
        return "comparisons do not chain: write `a < b and b < c`", None
    parts = tokens[max(0, index - 3) : index]
    if [t.kind for t in parts] == ["NAME", "MINUS", "NAME"] and parts[0].end + 1 == parts[2].start:
        return "names have no `-`: write `_`", None
    word = source.text[token.start : token.end]
    is_key = "NAME" in expected and tokens[min(index + 1, len(tokens) - 1)].kind in ("EQUAL", "COLON")
    if word in KEYWORDS and (is_key or before.kind in ("SEP", "LBRACE")):
        return f'`{word}` is a reserved word; as a key it stands in quotes: `"{word}"`', None
    if token.kind == "NAME" and before.kind == "NAME" and {"COLON", "COMMA"} <= expected:
        return "a parameter is `name: type`, an argument `value` or `name = value`", None
    if token.kind == "LBRACE" and "NUMBER" in expected:
        return "no value begins with `{`: write a block, `key { … }`", None
    if token.kind in VALUES and "COMMA" in expected:
        return "put `,` between two elements", None
    return _general_help(before, expected), None


def _general_help(before: Token, expected: frozenset[str]) -> str:
    """What to do, from the expected set alone."""
    if before.kind == "NAME" and {"EQUAL", "LBRACE"} <= expected:
        return "a statement is `key = value`, `key { … }`, `word name …` or `field: type`"
    if {"NUMBER", "NAME"} <= expected:
        return "a value is a number, a string, a name, a list `[…]` or a call `f(…)`"
    if "SEP" in expected:
        return "begin a new line, or put `;` between two statements"
    if "ENSURE" in expected:
        return "a statement begins with a word, a string, `ensure` or `fact`"
    if "NAME" in expected:
        return "a name is made of letters, digits and `_`, and begins with a letter or `_`"
    for kind in ("STRING", "EQUAL", *_CLOSERS, "DOTDOT", "WITH", "IN", "LBRACE"):
        if kind in expected:
            return f"add {called(kind)} before this"
    return f"write {describe(expected)} here"
