"""Tokens, and what people call them."""

from __future__ import annotations

from typing import NamedTuple


class Token(NamedTuple):
    """One token: its kind (a terminal of grammar.lark) and the characters it covers."""

    kind: str
    start: int
    end: int


KEYWORDS = frozenset(
    "and or not implies if then else in true false for by outranks rises falls strictly with because "
    "ensure fact".split()
)

SYMBOLS = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE", ",": "COMMA",
    ":": "COLON", "=": "EQUAL", ".": "DOT", "..": "DOTDOT", "+": "PLUS", "-": "MINUS", "*": "STAR",
    "/": "SLASH", "==": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE", ";": "SEMI",
}

INFIX = frozenset(
    "PLUS MINUS STAR SLASH EQ NE LT LE GT GE AND OR IMPLIES IN THEN ELSE BY OUTRANKS RISES FALLS STRICTLY "
    "WITH BECAUSE FOR DOT DOTDOT COMMA".split()
)
"""A line that ends or begins with one of these belongs with its neighbour."""

OPENERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
CLOSERS = {close: open_ for open_, close in OPENERS.items()}

_WORDS = {kind: text for text, kind in SYMBOLS.items()} | {word.upper(): word for word in KEYWORDS}
VALUES = frozenset("NUMBER STRING STR_HEAD TRUE FALSE LPAR LSQB MINUS NOT IF NAME".split())
OPERATORS = frozenset("PLUS MINUS STAR SLASH EQ NE LT LE GT GE AND OR IMPLIES DOT".split())
_PLAIN = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a string", "STR_HEAD": "a string",
    "STR_MID": "`}`", "STR_TAIL": "`}`", "SEP": "the end of the line", "$END": "the end of the file",
}


def called(kind: str) -> str:
    """What a terminal is called in a message: `=` with its quotes, or "a name"."""
    return _PLAIN.get(kind) or f"`{_WORDS.get(kind, kind)}`"
