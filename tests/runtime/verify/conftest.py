"""The real parent and child as plain processes of this machine: no sandbox, but the same programs and rights."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import guerdon.runtime.verify as room
from guerdon.runtime.verify.harness import parse

PYTHON = "/usr/bin/python3"
UID = 54321
"""A user that owns nothing on this machine: attacks that kill "all of mine" find only themselves."""
INSIDE = Path(room.__file__).parent / "inside"
START = """
import runpy, sys
sys.path.append(sys.argv[1] + "/site")
runpy.run_path(sys.argv[1] + "/main.py", run_name="__main__")
"""
"""The entry as it is, with this environment's pytest in place of an image's."""


@dataclass
class Report:
    tests: Mapping[str, str]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.tests) and set(self.tests.values()) == {"passed"}


@dataclass
class Lab:
    base: Path

    def write(self, folder: str, files: Mapping[str, str]) -> Path:
        root = self.base / folder
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(mode=0o755)
        for name, text in files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return root

    def verify(self, solution: Mapping[str, str], hidden: Mapping[str, str], call_wall: float = 5.0,
               wall: float = 25.0, memory: int = 1 << 30, open_workdir: bool = False) -> Report:
        work = self.write("work", solution)
        tests = self.write("grader/tests", hidden)
        for file in tests.rglob("*"):
            file.chmod(0o600)
        if open_workdir:
            for path in (work, *work.rglob("*")):
                os.chown(path, UID, UID)
        job = {"nonce": "f00d", "tests": str(tests), "roots": None, "workdir": str(work), "uid": UID, "gid": UID,
               "processes": 24, "memory": memory, "call_wall": call_wall, "wall": wall}
        done = subprocess.run(
            [PYTHON, "-I", "-B", "-c", START, str(self.base / "grader/harness")], input=json.dumps(job).encode(),
            env={"PATH": "/usr/bin:/bin"}, capture_output=True, timeout=wall + 20, check=False, cwd="/",
        )
        report = parse(done.stdout, "f00d")
        assert report is not None, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
        assert "broken" not in report, report["broken"]
        return Report(report["tests"], report["reasons"])

    def naive(self, solution: Mapping[str, str], hidden: Mapping[str, str]) -> bool:
        """What a verifier that runs pytest in one process and looks at the exit code would say."""
        work = self.write("naive", {**hidden, **solution})
        done = subprocess.run(
            [PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=work, timeout=60, check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{work}:{self.base / 'grader/harness/site'}"},
            capture_output=True,
        )
        return done.returncode == 0


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Needs root (the parent changes to another user) and a system Python beside this one."""
    if os.geteuid() != 0 or not Path(PYTHON).exists():
        pytest.skip("the parent and child as plain processes need root and /usr/bin/python3")
    base = Path(tempfile.mkdtemp(prefix="verify-lab-", dir="/tmp"))
    base.chmod(0o755)
    harness = base / "grader/harness"
    (base / "grader").mkdir(mode=0o700)
    shutil.copytree(INSIDE, harness / "guerdon_inside", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(INSIDE / "main.py", harness)
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, harness / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(str(importlib.util.find_spec("py").origin)), harness / "site/py.py")
    subprocess.run([PYTHON, "-I", "-m", "compileall", "-q", str(harness)], check=True)
    yield Lab(base)
    shutil.rmtree(base)
