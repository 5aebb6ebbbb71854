"""The shipped packs: each compiles without a warning, and is locked and calibrated in real sandboxes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon.compiler.check import compile_pack

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(p.name for p in (ROOT / "examples").iterdir() if p.is_dir())


def guerdon(*words, cwd=None):
    """The command line as a user calls it, in a process of its own."""
    command = [sys.executable, "-m", "guerdon.runtime.cli.main", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", EXAMPLES)
def test_compiles_without_a_warning(name):
    compiled = compile_pack(ROOT / "examples" / name)
    assert [str(d.message) for d in compiled.diagnostics if d.severity != "note"] == []
    assert all(not t.not_yet for t in compiled.plan.tasks.values())
    assert {c.verdict for t in compiled.plan.tasks.values() for c in t.reward.claims} == {"proved"}


@pytest.mark.podman
@pytest.mark.parametrize("name", EXAMPLES)
def test_locks_and_calibrates(name, tmp_path):
    pack = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, pack)
    (pack / "guerdon.lock").unlink(missing_ok=True)
    locked = guerdon("lock", pack)
    assert locked.returncode == 0, locked.stderr
    done = guerdon("calibrate", pack, "--runs", tmp_path / "runs", "--first", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (tmp_path / "runs").glob("*-calibration.json")
    rows = json.loads(report.read_text())["policies"]
    assert {r["policy"] for r in rows} >= {"oracle", "idle", "refusal", "quit"}
    assert all(r["invalid"] == 0 for r in rows)
    assert all((r["fail"] == 0) == (r["policy"] == "oracle") for r in rows)


@pytest.mark.podman
def test_the_committed_lock_is_what_locking_learns(tmp_path):
    pack = tmp_path / "fix_bug"
    shutil.copytree(ROOT / "examples" / "fix_bug", pack)
    committed = (pack / "guerdon.lock").read_bytes()
    assert compile_pack(pack).plan.unlocked == ()
    (pack / "guerdon.lock").unlink()
    assert guerdon("lock", pack).returncode == 0
    assert (pack / "guerdon.lock").read_bytes() == committed


@pytest.mark.podman
def test_runs_from_the_plan_with_the_pack_deleted(tmp_path):
    pack = tmp_path / "word_count"
    shutil.copytree(ROOT / "examples" / "word_count", pack)
    assert guerdon("plan", pack, "-o", tmp_path / "plan.json").returncode == 0
    shutil.rmtree(pack)
    done = guerdon("run", tmp_path / "plan.json", "policy=oracle", f"store.runs={tmp_path}/runs")
    assert done.returncode == 0, done.stderr
    (summary,) = (tmp_path / "runs").glob("word_count-oracle-*/summary.json")
    counts = json.loads(summary.read_text())["total"]
    assert (counts["pass"], counts["fail"], counts["invalid"]) == (3, 0, 0)


def test_the_readme_opens_with_a_task_that_compiles(tmp_path):
    (block,) = re.findall(r"```task\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "fizzbuzz.task").write_text(block)
    (tmp_path / "gold.py").write_text("def fizzbuzz(n):\n    return str(n)\n")
    (tmp_path / "hidden_tests").mkdir()
    (tmp_path / "hidden_tests" / "test_it.py").write_text("def test_it():\n    pass\n")
    compiled = compile_pack(tmp_path)
    assert [d.message for d in compiled.diagnostics] == []
    assert compiled.plan is not None and os.sep not in compiled.plan.pack
