"""The page of each code that the compiler emits: it exists, its first example gives the code, its second is clean.

An example shows the part that matters: declarations that it does not write are those below.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from guerdon import compiler
from guerdon.compiler.check import compile_pack
from guerdon.dsl import pages as explain

REST = {
    "edition": "edition 1\n",
    "import": 'import "std/python.task" (slim, bash, submit)\n',
    "dataset rows": """dataset rows = jsonl("rows.jsonl") {
  key = id
  schema { id: string; level: int in 1..5; gold: string secret; notes: path }
}
""",
    "environment box": "environment box {\n  image = slim\n}\n",
    "verifier checked": 'verifier checked = exec(["make", "check"]) {\n  collect = ["/workspace/src/**"]\n}\n',
    "reward shaped": "reward shaped(check: exec) {\n  solved = check.passed\n  term outcome 1 = solved\n}\n",
    "task work": """task work for row in rows {
  environment = box
  prompt = "Mend ${row.id}."
  tools  = [bash, submit]
  limits { turns = 10; tokens = 1000 }
  verify { check = checked }
  reward = shaped(check)
}
""",
}
ROOM = Path(compiler.__path__[0])
EMITTED = sorted({c for p in ROOM.rglob("*.py") for c in re.findall(r'"(T[1-9][0-9]{2})"', p.read_text("utf-8"))})
OUTSIDE_THE_TEXT = {"T504"}


def test_every_emitted_code_has_a_page_and_every_page_a_code():
    assert len(EMITTED) > 30
    assert set(EMITTED) == {code for code in explain.codes() if not code.startswith("T0")}


@pytest.mark.parametrize("code", EMITTED)
def test_page(code, tmp_path):
    text = explain.page(code)
    assert text is not None and text.startswith(f"# {code}: ")
    assert max(map(len, text.splitlines())) <= 120
    examples = explain.examples(text)
    assert [e.passes for e in examples] == ([] if code in OUTSIDE_THE_TEXT else [False, True])
    for name, content in re.findall(r"^```file (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(content)
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "level": 1, "gold": "x", "notes": "notes.txt"}\n')
    (tmp_path / "notes.txt").write_text("note\n")
    for example in examples:
        (tmp_path / "pack.task").write_text(whole(example.text))
        found = {d.code for d in compile_pack(tmp_path).diagnostics}
        assert found == (set() if example.passes else {code}), example.text


def whole(example: str) -> str:
    """The example, with what it does not write put before and behind it."""
    missing = {name: text for name, text in REST.items() if not re.search(rf"^{name}\b", example, re.MULTILINE)}
    first = "".join(missing.pop(name, "") for name in ("edition", "import"))
    return first + example + "".join(missing.values())
