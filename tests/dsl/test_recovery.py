"""Independent mistakes are each reported once, in their place, and what is sound stays in the tree."""

from pathlib import Path

import pytest

from guerdon.dsl.diagnostic import MAX_REPORTS
from guerdon.dsl.lalr import Automaton
from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source

GOLDEN = Path(__file__).parent / "golden"


def reports(text):
    _, found = parse(Source("t", text))
    return [(d.code, d.span.line, d.span.column) for d in found]


def test_ten_mistakes_are_ten_reports():
    assert reports((GOLDEN / "ten_mistakes.task").read_text(encoding="utf-8")) == [
        ("T003", 2, 26), ("T002", 3, 22), ("T001", 4, 9), ("T001", 5, 32), ("T001", 7, 20),
        ("T005", 8, 10), ("T009", 9, 21), ("T004", 10, 8), ("T001", 13, 25), ("T001", 14, 3),
    ]  # fmt: skip


def test_what_is_sound_stays_in_the_tree():
    file, _ = parse(Source("t", "a = 1\nb = =\ntask t for in rows {\n  c = 2\n  d = )\n  e { f = 3 }\n}\ng = 4\n"))
    assert [i.word.text for i in file.items] == ["a", "task", "g"]
    assert [i.word.text for i in file.items[1].body] == ["c", "e"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a = \nb = \nc = \n", [(1, 5), (2, 5), (3, 5)]),
        ("x { a = ; b = ; c = 1 }", [(1, 9), (1, 15)]),
        ("x (1 2) { a = }\ny = [1 2]\n", [(1, 6), (1, 15), (2, 8)]),
        ("a = 1 b = 2 c d e f\ng = \n", [(1, 7), (2, 5)]),
        ("ensure\nfact\n", [(1, 7), (2, 5)]),
    ],
)
def test_places_of_unexpected_tokens(text, where):
    assert reports(text) == [("T001", *place) for place in where]


def test_a_missing_brace_is_found_where_the_next_declaration_begins():
    text = "environment a {\n  x = 1\n\nverifier b = k { }\n\ntask c { y = }\n"
    file, found = parse(Source("t", text))
    assert [(d.code, d.span.line, d.span.column) for d in found] == [("T003", 1, 15), ("T001", 6, 14)]
    assert found[0].labels[0].span.line == 4
    assert [i.word.text for i in file.items] == ["environment", "verifier", "task"]


def test_a_missing_inner_brace_is_found_by_indentation():
    text = "environment a {\n  r { x = 1\n  s { y = 2 }\n}\ntask c { }\n"
    assert reports(text) == [("T003", 2, 5)]


def test_indentation_means_nothing_while_braces_match():
    assert reports("environment a {\ntask = 1\nverifier b = c { }\n}\n") == []


def test_noise_gives_a_bounded_number_of_reports():
    _, found = parse(Source("t", "a = =\n" * 1000))
    assert len(found) == MAX_REPORTS
    _, found = parse(Source("t", "a = =\n§ é ) \\\n" * 1000))
    assert len(found) == MAX_REPORTS and "more mistakes" in found[-1].notes[-1]


@pytest.mark.parametrize(
    "unit", ["(", "[", "{", "a {", '"${', '"""${', "not ", "-", "if a then ", "f(", "a = (", "((1)+", '"${x}'],
)
def test_no_depth_is_too_much(unit):
    file, found = parse(Source("t", "x = " + unit * 20_000))
    assert found
    repr(file), hash(file), file == file  # recursive in the tree's depth


@pytest.mark.parametrize("op", ["+", "and", "implies", "."])
def test_long_chains_keep_the_tree_flat(op):
    file, found = parse(Source("t", "x = a" + f" {op} a" * 20_000))
    assert [d.code for d in found] == ["T006"]
    repr(file)


def test_a_chain_within_the_limit_is_kept_whole():
    text = " + ".join(["a"] * 100)
    file, found = parse(Source("t", f"x = {text}"))
    assert found == () and file.items[0].value.span.text == text


@pytest.mark.parametrize(
    "text", ["a { b = 1 + f(2) }\n", "x = = 1\n", "b = 1 2 c { }\n", "f(a, [b, c]) { d: int in 0..1 }\n"]
)
def test_work_is_linear_in_the_text(text, monkeypatch):
    steps = 0
    feed, reduce = Automaton.feed, Automaton._reduce

    def counted_feed(self, token):
        nonlocal steps
        steps += 1
        return feed(self, token)

    def counted_reduce(self, rule):
        nonlocal steps
        steps += 1
        reduce(self, rule)

    monkeypatch.setattr(Automaton, "feed", counted_feed)
    monkeypatch.setattr(Automaton, "_reduce", counted_reduce)
    counts = []
    for size in (100, 200, 400):
        steps = 0
        parse(Source("t", text * size))
        counts.append(steps)
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0]) > 0
