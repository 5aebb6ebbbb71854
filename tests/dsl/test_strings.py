"""Strings: escapes, insertions, indentation."""

import pytest

from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source


def value(text):
    file, found = parse(Source("t.task", f"x = {text}"))
    assert found == (), [d.message for d in found]
    return file.items[0].value


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ('""', ""),
        ('"a b"', "a b"),
        (r'"\\boxed{}"', "\\boxed{}"),
        (r'"\"\n\t\$"', '"\n\t$'),
        (r'"\${x}"', "${x}"),
        ('"$ and $x"', "$ and $x"),
        (r'"\u{1F600}\u{e9}"', "\U0001f600é"),
        (r'r"\d+\.${x}"', r"\d+\.${x}"),
        ('r""', ""),
        ('""""""', ""),
        ('"""a"b""c"""', 'a"b""c'),
        ('"""\n    a\n      b\n    c\n  """', "a\n  b\nc\n"),
        ('"""\n    a\n\n    b"""', "a\n\nb"),
        ('"""\n  \\n a\n  b\n"""', "\n a\nb\n"),
        ('"""a\n   b\n  c\n"""', "a\n b\nc\n"),
        ('"""\n\ta\n\tb\n"""', "a\nb\n"),
        ('r"""\n    \\d\n    "x"\n    """', '\\d\n"x"\n'),
        ('"""\r\n  a\r\n  b\r\n"""', "a\nb\n"),
        ('"# no comment"', "# no comment"),
    ],
)
def test_text(text, meaning):
    found = value(text)
    assert found.literal == meaning and found.span.text == text


def test_insertions_stand_between_the_texts():
    found = value('"a ${row.x} b ${f("y}", 1)}${z}"')
    a, x, b, f, z = found.parts
    assert (a, b, found.literal) == ("a ", " b ", None)
    assert [p.span.text for p in (x, f, z)] == ["row.x", 'f("y}", 1)', "z"]
    assert repr(x.span) == "t.task:1:10"


def test_strings_nest():
    outer = value('"a${f("b${"c"}")}"')
    inner = outer.parts[1].args[0].value
    assert inner.parts[0] == "b" and inner.parts[1].literal == "c"


def test_an_insertion_counts_as_text_when_dedenting():
    found = value('"""\n    ${a}\n      x ${b}\n    """')
    assert [p if isinstance(p, str) else p.name for p in found.parts] == ["a", "\n  x ", "b", "\n"]


def test_what_is_inserted_is_not_dedented_or_unescaped_again():
    assert value(r'"${"\\n"}"').parts[0].literal == "\\n"


def test_unknown_escape_says_how_to_mend_it():
    source = Source("t.task", 'x = """\n  a\n  \\d+\n"""')
    _, (found,) = parse(source)
    assert (found.code, repr(found.span), found.span.text) == ("T004", "t.task:3:3", "\\d")
    assert found.fix.replacement == "\\\\d"


@pytest.mark.parametrize("text", [r'"\u{110000}"', r'"\u{d800}"', r'"\u12"', r'"\q"', '"""\\\n"""', r'"\x41"'])
def test_escapes_that_do_not_exist(text):
    _, found = parse(Source("t.task", f"x = {text}\n"))
    assert [d.code for d in found] == ["T004"]
