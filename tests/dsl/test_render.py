"""The renderers, each on the same diagnostics."""

import json

import pytest

from guerdon.dsl.diagnostic import Fix, Label, error, note, warning
from guerdon.dsl.render import RENDERERS, full
from guerdon.dsl.render.text import harmless, summary, width
from guerdon.dsl.source import Source, Span

A = Source("a.task", "one = 1\ntwo = 2\nthree = 3\nfour = 4\n")
B = Source("std/b.task", "kind x { }\n")
FOUND = [
    error("T201", "these do not match", Span(A, 14, 15), label="a number", help="write `3`",
          labels=(Label(Span(A, 0, 3), "first here"), Label(Span(B, 5, 6), "declared here")),
          notes=("a note",), fix=Fix(Span(A, 14, 15), "3")),
    warning("T311", "careful", None),
    note("T900", "by the way", Span(A, 0, 3)),
]  # fmt: skip


def test_full():
    assert RENDERERS["full"](FOUND) == """\
error[T201]: these do not match
 --> a.task:2:7
  |
1 | one = 1
  | --- first here
2 | two = 2
  |       ^ a number
 ::: std/b.task:1:6
  |
1 | kind x { }
  |      - declared here
  = note: a note
  = help: write `3`

warning[T311]: careful

note[T900]: by the way
 --> a.task:1:1
  |
1 | one = 1
  | ^^^

1 error, 1 warning
"""


def test_concise():
    assert RENDERERS["concise"](FOUND) == (
        "a.task:2:7: error[T201]: these do not match\nwarning[T311]: careful\n"
        "a.task:1:1: note[T900]: by the way\n1 error, 1 warning\n"
    )


def test_json_and_jsonl_say_the_same():
    whole = json.loads(RENDERERS["json"](FOUND))
    assert [json.loads(line) for line in RENDERERS["jsonl"](FOUND).splitlines()] == whole["diagnostics"]
    assert (whole["errors"], whole["warnings"]) == (1, 1)
    first, second, _ = whole["diagnostics"]
    assert first["location"] == {
        "file": "a.task", "line": 2, "column": 7, "end_line": 2, "end_column": 8, "start": 14, "end": 15,
    }  # fmt: skip
    assert first["fix"]["replacement"] == "3" and first["labels"][1]["text"] == "declared here"
    assert second["location"] is None and second["fix"] is None


def test_nothing_found():
    assert {name: render([]) for name, render in RENDERERS.items()} == {
        "full": "", "concise": "", "jsonl": "",
        "json": '{\n  "diagnostics": [],\n  "errors": 0,\n  "warnings": 0\n}\n',
    }  # fmt: skip


def test_colour_only_if_asked_for():
    assert "\033" not in full.render(FOUND)
    coloured = full.render(FOUND, colour=True)
    assert "\033[1;31merror[T201]\033[0m" in coloured


@pytest.mark.parametrize("name", RENDERERS)
def test_hostile_text_does_not_reach_the_terminal(name):
    hostile = "\033]0;owned\a\u202e\0\x9b31m"
    source = Source(f"{hostile}.task", f"x = {hostile}\n")
    found = [error("T005", hostile, Span(source, 4, 6), help=hostile, label=hostile, notes=(hostile,))]
    assert not set(RENDERERS[name](found)) & set("\033\a\u202e\0\x9b")


def test_full_points_at_wide_and_combining_characters():
    source = Source("a.task", "x = 日本e\u0301 y\tz\n")
    lines = full.render([error("T001", "m", Span(source, 9, 10)), error("T001", "m", Span(source, 11, 12))]).split("\n")
    pointed = [line.index("^") for line in lines if "^" in line]
    # `x = ` 4, two wide characters 4, `é` one column and no more, blank 1, `y` 1, tab 4; the gutter takes 4.
    assert pointed == [4 + 10, 4 + 15]


def test_full_clips_a_long_line_around_the_mark():
    source = Source("a.task", "x" * 5000 + "!" + "y" * 5000)
    lines = full.render([error("T001", "m", Span(source, 5000, 5001))]).split("\n")
    assert len(lines[3]) < 140
    assert lines[3][lines[4].index("^")] == "!"


def test_full_marks_a_span_of_several_lines_by_its_first():
    lines = full.render([error("T001", "m", Span(A, 6, 20))]).split("\n")
    assert lines[3:5] == ["1 | one = 1", "  |       ^"]


def test_full_marks_the_end_of_the_file():
    assert "  |  ^" in full.render([error("T001", "m", Span(Source("a", "x"), 1, 1))])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"), ("\t", "    "), ("é日", "é日"), ("\x1b", "\\u{1b}"), ("\xa0", "\\u{a0}"),
        ("\u200b", "\\u{200b}"), ("\ud800", "\\u{d800}"),
    ],
)
def test_harmless(text, shown):
    assert harmless(text) == shown


def test_width_and_summary():
    assert (width("abc"), width("日本"), width("e\u0301")) == (3, 4, 1)
    assert summary([FOUND[0]] * 3 + [FOUND[1]]) == "3 errors, 1 warning"
    assert summary([FOUND[2]]) == ""
