"""Files of a pack: nothing outside of it, nothing but plain files, digests of content alone."""

from __future__ import annotations

import hashlib
import json
import os
import stat

import pytest

FILES = ("# environment", 'files { "/workspace" = dir("tree") }')


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a\n")
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    return folder


def address(compiled):
    (environment,) = compiled.plan.environments.values()
    return dict(environment.files)["/workspace"]


def test_a_tree_is_addressed_by_its_manifest(make, tree):
    entries = [["a.txt", 0o644, "sha256:" + hashlib.sha256(b"a\n").hexdigest()],
               ["sub/run.sh", 0o755, "sha256:" + hashlib.sha256(b"#!/bin/sh\n").hexdigest()]]
    manifest = json.dumps(entries, separators=(",", ":")).encode() + b"\n"
    assert address(make(*FILES)) == "tree-sha256:" + hashlib.sha256(manifest).hexdigest()


def test_times_umask_and_litter_change_no_address(make, tree):
    before = address(make(*FILES))
    os.utime(tree / "a.txt", (1, 1))
    (tree / "a.txt").chmod(0o600)
    (tree / "sub" / "run.sh").chmod(0o700)
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "x.pyc").write_bytes(b"litter")
    assert address(make(*FILES)) == before


def test_content_names_and_the_executable_bit_do(make, tree):
    seen = {address(make(*FILES))}
    (tree / "a.txt").write_text("b\n")
    seen.add(address(make(*FILES)))
    (tree / "a.txt").chmod(0o755)
    seen.add(address(make(*FILES)))
    (tree / "a.txt").rename(tree / "b.txt")
    seen.add(address(make(*FILES)))
    assert len(seen) == 4


def refused(make, *changes, **rest):
    compiled = make(*changes, **rest)
    assert compiled.plan is None
    return [(d.code, d.message) for d in compiled.diagnostics if d.code != "T701"]


@pytest.mark.parametrize("name", ["link", "sub/link", "pipe"])
def test_links_and_pipes_in_a_tree_are_refused(make, tree, name):
    if name == "pipe":
        os.mkfifo(tree / name)
    else:
        (tree / name).symlink_to("a.txt")
    assert refused(make, *FILES) == [("T503", f"`tree/{name}` is neither a file nor a folder")]


def test_a_name_that_is_no_utf8_is_refused(make, tree):
    os.mknod(os.fsencode(tree) + b"/\xff")
    ((code, message),) = refused(make, *FILES)
    assert code == "T503" and "UTF-8" in message


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "tree/../../outside", "out", "out/passwd", "missing", "",
                                  "a" * 5000, "tree/a.txt/x", "pipe"])
@pytest.mark.parametrize("what", ["file", "dir"])
def test_no_path_leads_out_of_the_pack_or_to_nothing(make, tree, tmp_path, path, what):
    (tmp_path / "out").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    ((code, _),) = refused(make, "# environment", f'files {{ "/workspace" = {what}("{path}") }}')
    assert code == "T503"


@pytest.mark.parametrize("path", ["../rows.jsonl", "/etc/passwd", "pipe", "out"])
def test_rows_and_imports_keep_inside_too(make, tmp_path, path):
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    assert [c for c, _ in refused(make, 'jsonl("rows.jsonl")', f'jsonl("{path}")')] == ["T503"]
    assert [c for c, _ in refused(make, "edition 1", f'edition 1\nimport "{path}" (other)')] == ["T108"]


def test_a_row_may_not_name_a_file_outside(make):
    rows = '{"id": "a", "level": 1, "gold": "x", "notes": "../../etc/passwd"}\n'
    assert [c for c, _ in refused(make, "# task", 'files { "/workspace/n" = row.notes }', rows=rows)] == ["T503"]


def test_every_asset_of_the_plan_is_handed_over(make, tree):
    compiled = make(*FILES)
    manifest = json.loads(compiled.assets[address(compiled).removeprefix("tree-")])
    assert {entry[2] for entry in manifest} <= set(compiled.assets)
    for name, content in compiled.assets.items():
        data = content if isinstance(content, bytes) else content.read_bytes()
        assert name == "sha256:" + hashlib.sha256(data).hexdigest()
    assert compiled.plan.instances in compiled.assets
    assert stat.S_ISREG((tree / "a.txt").stat().st_mode)


@pytest.mark.parametrize("path", ["/grader/x", "/proc/x", "relative", "/workspace/../etc", "/", "/workspace//x"])
def test_a_task_writes_only_where_it_may(make, tree, path):
    assert [c for c, _ in refused(make, "# environment", f'files {{ "{path}" = dir("tree") }}')] == ["T206"]


def test_a_digest_is_no_path(make):
    digest = "sha256:" + "0" * 64
    changes = ('= exec(["true"]) {', f'= file("/workspace/x") {{ equals = "{digest}"', "check: exec", "check: file")
    assert [c for c, _ in refused(make, *changes)] == ["T503"]
