"""The grammar has no conflict, and the shipped tables are the grammar's."""

import re

import pytest
from lark.exceptions import LarkError

from guerdon.dsl import tablegen, tables, tokens
from guerdon.dsl.build import Builder


def test_strict_lark_finds_no_conflict():
    grammar = tablegen.GRAMMAR.read_text(encoding="utf-8")
    rules, states, _ = tablegen.build(grammar, strict=True)
    assert len(rules) > 100 and len(states) > 200


def test_strict_lark_would_find_a_conflict():
    grammar = tablegen.GRAMMAR.read_text(encoding="utf-8")
    ambiguous = grammar.replace("?sum: product", "?sum: product\n    | sum PLUS sum -> binary", 1)
    with pytest.raises(LarkError, match="(?i)conflict"):
        tablegen.build(ambiguous, strict=True)


def test_tables_are_made_from_the_grammar():
    made = tablegen.render(tablegen.GRAMMAR.read_text(encoding="utf-8"))
    assert tablegen.TABLES.read_text(encoding="utf-8") == made, "run `python -m guerdon.dsl.tablegen`"


def test_every_action_exists():
    for _, _, action, _ in tables.RULES:
        assert not action or callable(getattr(Builder, action))


def test_lexer_and_grammar_agree_on_the_terminals():
    grammar = tablegen.GRAMMAR.read_text(encoding="utf-8")
    declared = {name for line in re.findall(r"^%declare (.*)$", grammar, re.M) for name in line.split()}
    made = (set(tokens.SYMBOLS.values()) - {"SEMI"}) | {word.upper() for word in tokens.KEYWORDS}
    assert declared == made | {"SEP", "NAME", "NUMBER", "STRING", "STR_HEAD", "STR_MID", "STR_TAIL"}
