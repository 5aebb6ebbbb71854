"""What is installed is what stands in the tree: packages, data files, entry point, and each module once."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]


def test_every_package_folder_is_listed():
    found = {".".join(("guerdon", *init.parent.relative_to(ROOT).parts))
             for folder in FOLDERS.values() for init in (ROOT / folder).rglob("__init__.py")}
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(found) == sorted(listed) and len(listed) == len(set(listed))


def test_every_python_file_lies_in_a_package():
    for folder in FOLDERS.values():
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), path


@pytest.mark.parametrize(("package", "pattern"), [
    (package, pattern) for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items()
    for pattern in patterns if pattern.startswith(("std", "explain", "py.typed"))
])
def test_data_files_are_found_by_their_package(package, pattern):
    folder = ROOT / FOLDERS[package]
    names = [p.relative_to(folder) for p in folder.glob(pattern)]
    assert names
    for name in names:
        assert files(package).joinpath(*name.parts).is_file()


def test_no_data_file_is_forgotten():
    """Each file that is no Python lies under a pattern of package-data."""
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for package, folder in FOLDERS.items():
        covered = {p for pattern in data[package] for p in (ROOT / folder).glob(pattern)}
        found = {p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
        assert found <= covered


def test_each_module_is_there_once():
    """Both names of one file (`dsl.tree` beside `guerdon.dsl.tree`) would make two classes of each."""
    program = ("import sys, guerdon.runtime.cli.check\nfrom collections import Counter\n"
               "found = Counter(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None))\n"
               "print([f for f, n in found.items() if n > 1 and 'guerdon' in f],\n"
               "      [m for m in sys.modules if m.split('.')[0] in ('dsl', 'compiler', 'runtime', 'conf')])\n")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.split() == ["[]", "[]"]


def test_the_command_is_installed():
    (script,) = (e for e in entry_points(group="console_scripts") if e.name == "guerdon")
    assert callable(script.load())
