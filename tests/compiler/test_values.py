"""Types, units, ranges, secrets and names: each mistake is one error, with its remedy."""

from __future__ import annotations

import pytest

from guerdon.dsl.diagnostic import Severity

ONE = [
    # units
    ("turns = 4;", "turns = 4; wall = 30s + 2;", "T202", "`2s`"),
    ("turns = 4;", "turns = 4; wall = 1min - 3;", "T202", "`3s`"),
    ("# environment", "resources { memory = 512 }", "T202", "`512MiB`"),
    ("# environment", "resources { memory = 30s }", "T202", "MiB"),
    ("turns = 4;", "turns = 4; wall = 30s * 30s;", "T202", "same unit"),
    ("# reward", "term slow -0.1 = trajectory.wall", "T202", "limit.wall"),
    ("# reward", "term slow -0.1 = if trajectory.wall > 30 then 1 else 0", "T202", "`30s`"),
    ("# reward", "term slow -0.1 = (trajectory.wall + 2) / limit.wall", "T202", "`2s`"),
    ("level: int in 1..5; gold", "level: int in 1..5s; gold", "T202", "same unit"),
    # ranges
    ("turns = 4;", "turns = 0;", "T203", "1..10000"),
    ("turns = 4;", "turns = 4000000;", "T203", "1..10000"),
    ("# environment", "resources { cpu = 1 - 2 }", "T203", "0.01"),
    ("level: int in 1..5; gold", "level: int in 5..1; gold", "T203", "1..5"),
    ("level: int in 1..5; gold", "level: int in 0.5..5; gold", "T203", "whole numbers"),
    ("train = 0.5; eval = 0.5", "train = 0.5; eval = 0.4", "T203", "exactly 1"),
    ("term outcome 1 =", "term outcome 3 in 0..2 =", "T203", "range"),
    ("# verifier", "signals { size: int up }", "T203", "in 0..1"),
    ("# verifier", "signals { size: int in 0..1s up }", "T202", "same unit"),
    ("level: int in 1..5) {", "level: int in 1..3) {", "T203", "narrow the field"),
    ("# task", "difficulty = " + " * ".join(["1e300"] * 15), "T203", "smaller"),
    # division
    ("# reward", "term rate 0.1 = 1 / trajectory.turns", "T204", "max(1"),
    ("# reward", "term rate 0.1 = 1 / (level - 3)", "T204", "max(1"),
    ("# task", "difficulty = 1 / 0", "T201", "types"),
    # types
    ("# task", 'difficulty = "hard"', "T201", "number"),
    ("# task", 'difficulty = if "a" and "b" then 1 else 2', "T201", "types"),
    ("solved = check.passed", "solved = check.exit_code", "T201", "compare"),
    ("# reward", "term odd 0.1 = check.passed + 1", "T201", "if x then 1 else 0"),
    ("# reward", "term odd 0.1 = clamp(level)", "T205", "clamp(x, 0, 1)"),
    ("# task", "solution { call bash(5) }", "T201", "declares"),
    ("# task", "solution { call bash(row) }", "T201", "declares"),
    ("# task", "forbid f = called(bash, \"(\")", "T201", "pattern"),
    ("# task", "milestone m = checked(row.gold).exit_code", "T101", "passed"),
    ("# task", "milestone m = 5", "T106", "milestone"),
    ("# verifier", "fact passed outranks passed", "T106", "implies"),
    # secrets
    ("Work on ${row.id}.", "Work on ${row.gold}.", "T401", "secret"),
    ('"Work on ${row.id}."', 'if row.gold == "x" then "a" else "b"', "T401", "secret"),
    ("# task", 'files { "/workspace/${row.gold}" = row.notes }', "T402", "hidden"),
    # names, with a guess
    ("row.level)", "row.levl)", "T205", "row"),
    ("${row.id}", "${row.idd}", "T101", "`id`"),
    ("check.passed", "check.pased", "T101", "`passed`"),
    ("check.passed", "chek.passed", "T101", "`check`"),
    ("checked(row.gold)", "cheked(row.gold)", "T101", "`checked`"),
    ("tools  =", "tols  =", "T103", "`tools`"),
    ("task work", "taks work", "T102", "`task`"),
    ("environment = box", "environment = bux", "T101", "`box`"),
    ("= exec(", "= exek(", "T101", "`exec`"),
    ("gold: string secret", "gold: strng secret", "T101", "`string`"),
    ("gold: string secret", "gold: string secert", "T101", "`secret`"),
    ("[bash, submit]", "[bash, submitt]", "T101", "`submit`"),
    ("(slim, bash, submit)", "(slim, bassh, submit)", "T101", "`bash`"),
    ("import \"std/python.task\"", "import \"std/pyton.task\"", "T108", "std/python"),
    # images
    ("image = slim", 'image = "python:3.11"', "T405", "digest"),
    ("image = slim", 'image = "python@sha256:12"', "T405", "64"),
    ("image = slim", 'image = own\n}\nimage own = registry("python:3.11")\nimage more = debian {', "T405", "digest"),
    # missing
    ("prompt = \"Work on ${row.id}.\"", "", "T105", "prompt = …"),
    ("limits { turns = 4; tokens = 1000 }", "limits { tokens = 1000 }", "T105", "turns = …"),
    ("image = slim", "", "T105", "image = …"),
    ("# reward\n}", "# reward\n}\nenvironment other", "T106", "{ … }"),
    ("solved = check.passed", "", "T300", "solved"),
    # twice
    ("# task", "prompt = \"again\"", "T104", "remove one"),
    ("# task", "}\nenvironment box { image = slim", "T104", None),
    ("# reward", "term outcome 0.5 = solved", "T104", "remove one"),
    ("# reward", "weight outcome: real in 0..1 = 0.5", "T104", "rename"),
    ("(want: string)", "(want: string, want: string)", "T104", "rename"),
]


@pytest.mark.parametrize(("old", "new", "code", "help"), ONE, ids=lambda v: str(v)[:40])
def test_a_mistake_is_one_error_with_its_remedy(told, old, new, code, help):
    found = told(old, new)
    assert [f.split()[0] for f in found][:1] == [code], found
    assert len(found) == 1, found
    assert help is None or help in found[0].rpartition(" | ")[2], found


def test_the_pack_itself_is_clean(make):
    compiled = make()
    assert compiled.diagnostics == () and compiled.plan is not None


def test_units_scale_exactly(make):
    plan = make("turns = 4;", "turns = 4; wall = 1h / 4 + 30s * 2;").plan
    assert plan.tasks["work"].limits.wall_ms == 3_600_000 // 4 + 60_000


def test_a_secret_environment_variable_or_folder_is_refused(told):
    secret = ("environment box {", "environment box(word: string) {", "= box", "= box(row.gold)")
    assert [f.split()[0] for f in told(*secret, "# environment", "env { A = word }")] == ["T402"]
    assert [f.split()[0] for f in told(*secret, "# environment", 'workdir = "/${word}"')] == ["T402"]


def test_a_secret_inside_a_list_stays_secret(told):
    found = told("gold: string secret", "gold: list[string secret]", "checked(row.gold)", 'checked("x")',
                 "# environment", "env { A = word }", "environment box {", "environment box(word: string) {",
                 "environment = box", "environment = box(if row.gold == row.gold then \"a\" else \"b\")",
                 rows='{"id": "a", "level": 1, "gold": ["x"], "notes": "notes.txt"}\n')
    assert [f.split()[0] for f in found] == ["T402"]


def test_a_row_number_is_bounded_by_its_schema(make):
    plan = make("# reward", "term level 0.1 = level / 5").plan
    reward = plan.tasks["work"].reward
    assert (reward.low, reward.high) == ("1/50", "11/10")  # 0.1 * 1/5 unsolved; 1 + 0.1 * 5/5 solved


def test_errors_are_errors(make):
    assert {d.severity for d in make("row.level)", "row.nothing)").diagnostics} == {Severity.ERROR}
