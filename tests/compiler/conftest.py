"""A small valid pack whose parts the tests replace one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from guerdon.compiler.check import Compiled, compile_pack

BASE = """edition 1
import "std/python.task" (slim, bash, submit)

dataset rows = jsonl("rows.jsonl") {
  key = id
  schema { id: string; level: int in 1..5; gold: string secret; notes: path }
  split(seed = 7) { train = 0.5; eval = 0.5 }
}

environment box {
  image = slim
  # environment
}

verifier checked(want: string) = exec(["true"]) {
  collect = ["/workspace/**"]
  # verifier
}

reward shaped(check: exec, level: int in 1..5) {
  solved = check.passed
  term outcome 1 = solved
  # reward
}

task work for row in rows {
  environment = box
  prompt = "Work on ${row.id}."
  tools  = [bash, submit]
  limits { turns = 4; tokens = 1000 }
  verify { check = checked(row.gold) }
  reward = shaped(check, row.level)
  # task
}
"""
ROWS = '{"id": "a", "level": 1, "gold": "x", "notes": "notes.txt"}\n'
Make = Callable[..., Compiled]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(old, new, …)` compiles the pack with each `old` text replaced; `files` are written beside it."""

    def build(*changes: str, rows: str = ROWS, files: Mapping[str, str | bytes] | None = None) -> Compiled:
        text = BASE
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        written: dict[str, str | bytes] = {"pack.task": text, "rows.jsonl": rows, "notes.txt": "n\n", **(files or {})}
        for name, content in written.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return compile_pack(tmp_path)

    return build


@pytest.fixture
def told(make: Make) -> Callable[..., list[str]]:
    """The errors and warnings of a changed pack, each as `CODE message | help`."""

    def tell(*changes: str, **rest: object) -> list[str]:
        found = make(*changes, **rest).diagnostics
        return [f"{d.code} {d.message} | {d.help}" for d in found if not d.code.startswith("T7")]

    return tell
