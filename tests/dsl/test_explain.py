"""Pages of codes: every syntax code has one, and its examples do what it says."""

import re
from pathlib import Path

import pytest

from guerdon.dsl import pages as explain
from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source

ROOM = Path(explain.__file__).parent
SYNTAX = [code for code in explain.codes() if code.startswith("T0")]
OUTSIDE_THE_TEXT = {"T007", "T008"}


def test_every_syntax_code_has_a_page():
    used = {c for p in ROOM.glob("*.py") for c in re.findall(r'"(T0[0-9]{2})"', p.read_text(encoding="utf-8"))}
    assert used == set(SYNTAX)


@pytest.mark.parametrize("code", SYNTAX)
def test_page(code):
    text = explain.page(code)
    assert text.startswith(f"# {code}: ")
    examples = explain.examples(text)
    assert len(examples) == text.count("```task")
    if code in OUTSIDE_THE_TEXT:
        assert examples == []
        return
    assert [e.passes for e in examples] == [False, True]
    for example in examples:
        _, found = parse(Source("example.task", example.text))
        assert [d.code for d in found] == ([] if example.passes else [code])


@pytest.mark.parametrize("code", ["T999", "../T001", "T001.md", "", "T1", "t001", "T001\n"])
def test_there_is_no_other_page(code):
    assert explain.page(code) is None
