"""What people get wrong in their first packs: one mistake is one error, and its help can be followed."""

from __future__ import annotations

import pytest

from guerdon.compiler.check import compile_pack
from guerdon.compiler.lockfile import lock_bytes, with_bases
from guerdon.runtime.cli.check import main as check

LIMITS = "limits { turns = 4; tokens = 1000 }"
ANSWER = """edition 1
import "std/task" (submit)

verifier paris = answer { expected = "Paris" }

reward right(a: answer) {
  solved = a.passed
  term outcome 1 = solved
}

task capital {
  prompt = "What is the capital of France?"
  # tools
  limits { turns = 2 }
  verify { a = paris }
  reward = right(a)
}
"""


def told(compiled):
    return [(d.code, d.message, d.help) for d in compiled.diagnostics]


@pytest.mark.parametrize(("old", "new", "code", "help"), [
    (LIMITS, LIMITS.replace("}", "; wall = 5m }"), "T009", "did you mean `min`?"),
    (LIMITS, LIMITS.replace("}", "; wall = 5GiB }"), "T202", "write it in one of the units ms, s, min, h"),
    ("turns = 4", "turns = 4.5", "T202", "write a whole number"),
    ("# environment", "resources { memory = 2gb }", "T009", "did you mean `GB`?"),
    ("# environment", "resources { memory = 5min }", "T202", "write it in one of the units B, KiB"),
    ('collect = ["/workspace/**"]', 'collect = "/workspace/**"', "T201", 'write `["/workspace/**"]`'),
    ("solved = check.passed", "solved = True", "T101", "write `true`"),
    ("# verifier", 'stdin = row.id', "T101", "get its fields as arguments"),
    ("term outcome 1 = solved", "outcome = 1 * solved", "T103", "known here"),
    ("term outcome 1 = solved", "term outcome 1e999 = solved", "T010", "exponent"),
    ("tools  = [bash, submit]", 'tools = ["bash", submit]\n  solution { call bash("ls") }', "T106", "write `bash`"),
    ("tools  = [bash, submit]", 'tools == [bash]\n  solution { call bash("ls") }', "T001", "a statement is"),
    ("tools  = [bash, submit]", 'tools = [bsh]\n  solution { call bash("ls") }', "T101", "did you mean `bash`?"),
])  # fmt: skip
def test_one_mistake_is_one_error_with_a_remedy(make, old, new, code, help):
    found = told(make(old, new))
    assert [f[0] for f in found] == [code], found
    assert help in found[0][2]


@pytest.mark.parametrize(("text", "message", "help"), [
    ("id,level,gold\na,1,x\nb,2,y\n", "the header has no `notes`", "add the column"),
    ("id,lvel,gold,notes\na,1,x,notes.txt\nb,1,x,notes.txt\n", "the header has no `level`", "the column `lvel`"),
    ("id,level,gold,notes\na,1,x\n", "the row has 3 cells, the header 4", "a cell for each name of the header"),
])  # fmt: skip
def test_a_csv_is_told_of_as_a_csv(make, text, message, help):
    ((code, what, remedy),) = told(make('jsonl("rows.jsonl")', 'csv("rows.csv")', files={"rows.csv": text}))
    assert (code, what) == ("T501", message) and help in remedy


def test_a_file_of_another_kind_is_not_read_as_a_pack(tmp_path):
    path = tmp_path / "gold.py"
    path.write_text("def f(): return 1\n")
    ((code, message, _),) = told(compile_pack(path))
    assert code == "T008" and "gold.py is no .task file" in message


@pytest.mark.parametrize(("tools", "setting", "codes"), [
    ("", "", ["T105"]), ("tools = [submit]", "", []), ("", "; from = final", []), ("", "; from = boxed", []),
])  # fmt: skip
def test_an_answer_that_nobody_can_submit_is_refused(tmp_path, tools, setting, codes):
    path = tmp_path / "pack.task"
    path.write_text(ANSWER.replace("# tools", tools).replace('"Paris" }', f'"Paris"{setting} }}'))
    assert [c for c, _, _ in told(compile_pack(path))] == codes


@pytest.mark.parametrize(("files", "leaks"), [
    ('"/workspace" = dir(".")', True), ('"/workspace/a.txt" = file("copy.txt")', True),
    ('"/workspace" = dir("part")', False), ('"/workspace" = dir("empty")', False),
])  # fmt: skip
def test_hidden_files_are_found_in_the_sandbox_by_content(make, files, leaks):
    compiled = make(
        "# environment", f"files {{ {files} }}", "# verifier", 'hidden { "/grader/tests" = dir("tests") }',
        files={"tests/a.py": "assert 1\n", "tests/b.py": "assert 2\n", "tests/__init__.py": "", "copy.txt": "same",
               "part/b.py": "assert 2\n", "empty/__init__.py": ""},
    ) if "copy" not in files else make(
        "# environment", f"files {{ {files} }}", "# verifier", 'hidden { "/grader/a" = file("hidden.txt") }',
        files={"copy.txt": "same", "hidden.txt": "same"},
    )
    assert [d.code for d in compiled.diagnostics] == (["T404"] if leaks else [])


def test_a_stale_lock_is_not_called_missing(make, tmp_path):
    changes = ('= exec(["true"])', "= pytest", "# verifier", 'expect = locked\n  hidden { "/grader/tests" = dir("t") }',
               "check: exec", "check: pytest")
    fresh = make(*changes, files={"t/test_a.py": "def test_a(): pass\n"})
    learned = {"expect": ["test_a.py::test_a"], "failing_at_start": []}
    lock = lock_bytes(with_bases({"work": {"a": {"check": learned}}}, fresh.bases)).decode()
    notes = [make(*changes, files={"t/test_a.py": text, "guerdon.lock": lock}).diagnostics
             for text in ("def test_a(): pass\n", "def test_a(): assert 1\n")]
    assert [d.code for d in fresh.diagnostics] == ["T702"] and "has changed" not in fresh.diagnostics[0].message
    assert notes[0] == () and "has changed" in notes[1][0].message


@pytest.mark.parametrize(("old", "new", "what"), [
    ("# environment", "git = squash", "`git` of an environment"),
    ("tools  = [bash, submit]", "tools = [bash, look, submit]", "the tool `look`"),
])  # fmt: skip
def test_what_this_version_does_not_run_is_said(make, old, new, what):
    compiled = make(old, new, "edition 1\n", 'edition 1\ntool look(path: string) { about = "Look." }\n')
    (note,) = compiled.diagnostics
    assert note.code == "T701" and what in note.message
    assert what in compiled.plan.tasks["work"].not_yet


def test_a_good_pack_beside_a_bad_one_is_said_to_be_good(make, tmp_path, capsys):
    make()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/pack.task").write_text("edition 1\n")
    assert check([str(tmp_path / "pack.task"), str(tmp_path / "bad")]) == 1
    shown = capsys.readouterr().out
    assert "pack.task: ok: 1 task" in shown and "bad: ok" not in shown
