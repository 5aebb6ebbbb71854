"""Imports: cycles, missing files, one file under two names; and no second error for what did not load."""

from __future__ import annotations

import pytest

IMPORT = ("edition 1", 'edition 1\nimport "{}" ({})')


def told_for(make, path, names="helper", **files):
    changes = (IMPORT[0], IMPORT[1].format(path, names))
    compiled = make(*changes, files={k.replace("_task", ".task"): v for k, v in files.items()})
    return [(d.code, d.message) for d in compiled.diagnostics]


VERIFIER = 'verifier helper = exec(["true"]) { collect = ["/workspace/**"] }\n'


def test_an_import_works(make):
    assert told_for(make, "other.task", other_task="edition 1\n" + VERIFIER) == []


@pytest.mark.parametrize("path", ["pack.task", "./pack.task"])
def test_a_file_that_imports_itself(make, path):
    ((code, message),) = told_for(make, path, "checked")
    assert code == "T108" and "imports itself" in message


def test_a_cycle_of_files(make):
    image = "image {} = debian {{ packages = [] }}\n"
    found = told_for(make, "a.task", "one", a_task='edition 1\nimport "b.task" (two)\n' + image.format("one"),
                     b_task='edition 1\nimport "./a.task" (one)\n' + image.format("two"))
    assert [c for c, _ in found] == ["T108"] and "by way of another file" in found[0][1]


def test_one_file_under_two_names_is_one_file(make):
    text = 'edition 1\nimport "other.task" (helper)\nimport "./other.task" (helper)'
    assert make("edition 1", text, files={"other.task": "edition 1\n" + VERIFIER}).diagnostics == ()


def test_names_of_a_file_that_does_not_load_are_no_second_errors(make):
    found = make('"std/python.task"', '"missing.task"').diagnostics
    assert [d.code for d in found] == ["T108"]


def test_a_broken_import_is_shown_where_it_is_broken(make):
    found = make(*(IMPORT[0], IMPORT[1].format("other.task", "helper")),
                 files={"other.task": "edition 1\n" + VERIFIER.replace("exec", "exek")}).diagnostics
    assert [d.code for d in found] == [] or {d.span.source.name.rpartition("/")[2] for d in found} == {"other.task"}


@pytest.mark.parametrize(("content", "code"), [(b"\xff", "T007"), (b"", "T107")])
def test_an_imported_file_that_is_no_task_file(make, content, code):
    found = told_for(make, "other.task", other_task=content)
    assert (code in [c for c, _ in found])


def test_every_finding_of_an_import_has_a_place(make):
    found = make(IMPORT[0], IMPORT[1].format("other.task", "helper"), files={"other.task": b"\xff"}).diagnostics
    assert [(d.code, d.span is not None) for d in found] == [("T007", True)]


@pytest.mark.parametrize("edition", ["", "edition 2", "edition 1s", 'edition "1"'])
def test_the_edition_is_said(make, edition):
    assert "T107" in [d.code for d in make("edition 1", edition).diagnostics]


def test_two_images_of_one_name_in_two_files_stay_two(make):
    other = """edition 1
image slim = debian { packages = ["gcc"] }
environment tools { image = slim }
"""
    second = "}\n\ntask other for row in rows {\n  environment = tools\n  prompt = \"x\"\n  limits { turns = 1 }\n" \
             "  verify { check = checked(row.gold) }\n  reward = shaped(check, row.level)\n"
    compiled = make(IMPORT[0], IMPORT[1].format("other.task", "tools"), "# task\n", second, files={"other.task": other})
    assert compiled.plan is not None
    packages = {name: compiled.plan.images[e.image].packages for name, e in compiled.plan.environments.items()}
    assert packages == {"box": ("git", "python3", "python3-pytest"), "tools": ("gcc",)}
