"""What people see: each mistake in golden/*.task gives the text beside it. GOLDEN=update rewrites the texts."""

import os
from pathlib import Path

import pytest

from guerdon.dsl.parser import parse, read
from guerdon.dsl.render import RENDERERS

CASES = sorted((Path(__file__).parent / "golden").glob("*.task"))


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_report(case):
    _, found = parse(read(case, case.name))
    text = RENDERERS["full"](found)
    golden = case.with_suffix(".txt")
    if os.environ.get("GOLDEN") == "update":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert found and all(d.help and d.span for d in found)
    assert text.isprintable() or all(c.isprintable() or c == "\n" for c in text)


def test_every_syntax_code_is_shown_somewhere():
    shown = {d.code for case in CASES for d in parse(read(case, case.name))[1]}
    assert shown == {"T001", "T002", "T003", "T004", "T005", "T006", "T009", "T010"}
