"""Where a statement ends."""

import pytest

from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source


def words(text):
    file, found = parse(Source("t.task", text))
    assert found == (), [d.message for d in found]
    return [i.word.text for i in file.items]


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\nb = 2",
        "a = 1; b = 2",
        "a = 1;\n\n;b = 2;",
        "\n\n# first\na = 1 # c\n# c\nb = 2\n",
        "a = 1\r\nb = 2\r\n",
        "\ufeffa = 1\nb = 2",
        "a { c = 1 }\nb { }",
    ],
)
def test_two_statements(text):
    assert words(text) == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 +\n2",
        "a = 1\n+ 2",
        "a = 1\n\n  # why\n  - 2",
        "a = x\n  and y\n  or z",
        "ensure a outranks b\n  by 0.1",
        "ensure a\n outranks b",
        "ensure a rises\n with b",
        "fact a\n implies b == 1",
        "a = f(\n1,\n2,\n)",
        "a = [\n1\n,\n2\n]",
        "a = if x\n then 1\n else 2",
        "a = x\n  .y",
        "term a 1\n in 0..1 = x",
        'allow T301\n  because "x"',
        "task a for r\n in rows\n{ }",
    ],
)
def test_one_statement(text):
    assert len(words(text)) == 1


def test_a_reserved_word_as_a_key_continues_no_line():
    _, found = parse(Source("t.task", "a = 1\nwith = 2\nb = 3\n"))
    assert [(d.code, repr(d.span)) for d in found] == [("T001", "t.task:2:1")]
    assert words('"with" = 2') == ["with"]


def test_empty_files():
    for text in ("", "\n", "# only a comment", " \t\r\n;;\n"):
        assert words(text) == []
