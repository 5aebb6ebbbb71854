"""`guerdon check` and `guerdon plan` as people run them: in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKS = HERE.parent / "packs"
NAMES = ("data", "doc", "fix_bug", "math", "ops", "swe")
GUERDON = (sys.executable, "-c", "from guerdon.runtime.cli.main import main; raise SystemExit(main())")


def guerdon(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GUERDON, *arguments], cwd=cwd, env={**os.environ, **environment}, text=True,
                          capture_output=True, timeout=120, check=False)


def test_ten_different_mistakes_are_ten_errors(tmp_path):
    shutil.copy(HERE / "golden" / "ten_mistakes.task", tmp_path)
    (tmp_path / "bugs.jsonl").write_text('{"id": "a", "hint": "h", "gold": "g", "level": 1}\n')
    ran = guerdon("check", "ten_mistakes.task", cwd=tmp_path)
    assert ran.stdout == (HERE / "golden" / "ten_mistakes.txt").read_text(encoding="utf-8")
    assert ran.returncode == 1 and ran.stderr == ""
    assert ran.stdout.count("error[") == ran.stdout.count("help:") == 10


HEAVY = ("hydra", "omegaconf", "torch", "podman", "rich", "hypothesis", "lark", "asyncio")


def test_check_imports_nothing_heavy():
    pack = str(PACKS / "math")
    program = (f"import sys; from guerdon.runtime.cli.main import main\ncode = main(['check', {pack!r}])\n"
               f"print([m for m in {HEAVY} if m in sys.modules]); raise SystemExit(code)")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1] == "[]"


def plans(folder: Path, umask: int, **environment: str) -> dict[str, bytes]:
    """The plan of each pack, compiled in a fresh copy of them in a folder."""
    for source in sorted(PACKS.rglob("*")):
        target = folder / source.relative_to(PACKS)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif source.parent != PACKS:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(0o666 & ~umask | (0o100 if source.stat().st_mode & 0o100 else 0))
    program = (f"import os, sys; os.umask({umask}); from guerdon.runtime.cli.main import main\n"
               f"raise SystemExit(max(main(['plan', n, '-o', n + '.json', '--store', 'store']) for n in {NAMES}))")
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, env={**os.environ, **environment},
                         capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return {name: (folder / f"{name}.json").read_bytes() for name in NAMES}


def test_plans_are_the_same_bytes_everywhere(tmp_path):
    one, two = tmp_path / "one", tmp_path / "deep" / "er" / "two with a blank"
    one.mkdir()
    two.mkdir(parents=True)
    first = plans(one, 0o022, LC_ALL="C", TZ="UTC", PYTHONHASHSEED="1")
    second = plans(two, 0o077, LC_ALL="C.UTF-8", TZ="Asia/Tokyo", PYTHONHASHSEED="2", PYTHONUTF8="0")
    assert first == second


@pytest.mark.parametrize(("arguments", "code"), [
    (["check"], 2), (["check", "missing"], 1), (["check", "--format", "odd", "x"], 2), (["check", "x" * 5000], 1),
])
def test_misuse_is_told_without_a_traceback(tmp_path, arguments, code):
    ran = guerdon(*arguments, cwd=tmp_path)
    assert ran.returncode == code and "Traceback" not in ran.stdout + ran.stderr
    assert ran.stdout + ran.stderr != ""
