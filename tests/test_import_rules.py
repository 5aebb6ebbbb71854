"""The rooms and who may import whom: every import of every file, those inside functions as well."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STDLIB = frozenset(sys.stdlib_module_names) | {"__future__"}
COMPOSING = ("loop", "calibrate", "cli")
"""The rooms of the runtime that may import the others."""
ROOMS = tuple(sorted(p.name for p in (ROOT / "runtime").iterdir() if (p / "__init__.py").is_file()))
THIRD_PARTY = {
    "guerdon.dsl": {"lark"},
    "guerdon.compiler": set(),
    "guerdon.compiler.plan": set(),
    "guerdon.runtime.contracts": set(),
    "guerdon.runtime.sandbox": {"podman", "requests"},  # requests is what podman itself speaks through
    "guerdon.runtime.verify.inside": {"pytest"},  # of the sandbox's own Python, where these files run
    "guerdon.conf": {"omegaconf", "hydra"},
}


def module_name(path: Path) -> str:
    parts = ("guerdon", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of each import; of `from a import b`, `a.b` where that is a module, else `a`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(path, node)
            yield from ((node.lineno, _deepest(base, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("guerdon."):
            name = node.value.partition(":")[0]  # the command table: "module:function"
            if name.replace(".", "").replace("_", "").isalnum() and _is_module(name):
                yield node.lineno, name


def _base(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module_name(path.parent / "__init__.py").split(".")
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def _deepest(module: str, name: str) -> str:
    return f"{module}.{name}" if _is_module(f"{module}.{name}") else module


def _is_module(name: str) -> bool:
    base = ROOT.joinpath(*name.split(".")[1:])
    return name.startswith("guerdon.") and (base.with_suffix(".py").is_file() or (base / "__init__.py").is_file())


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def allowed(importer: str) -> tuple[str, ...]:
    """The packages of guerdon that a module may import."""
    if within(importer, "guerdon.dsl"):
        return ("guerdon.dsl",)
    if within(importer, "guerdon.compiler.plan"):
        return ("guerdon.compiler.plan",)
    if within(importer, "guerdon.compiler"):
        return ("guerdon.compiler", "guerdon.dsl")
    if within(importer, "guerdon.conf"):
        return ("guerdon.conf",)
    room = importer.split(".")[2] if within(importer, "guerdon.runtime") and importer.count(".") > 1 else ""
    if room in COMPOSING:
        return ("guerdon",)
    return (f"guerdon.runtime.{room}", "guerdon.runtime.contracts", "guerdon.compiler.plan") if room else ()


def broken(path: Path) -> list[str]:
    importer = module_name(path)
    found = []
    for line, name in imports(path):
        if within(name, "guerdon"):
            fine = any(within(name, package) for package in allowed(importer))
        else:
            room = max((p for p in THIRD_PARTY if within(importer, p)), key=len, default=None)
            fine = name.split(".")[0] in STDLIB or room is None or name.split(".")[0] in THIRD_PARTY[room]
        if not fine:
            found.append(f"{path.relative_to(ROOT)}:{line}: {importer} may not import {name}")
    return found


@pytest.mark.parametrize("folder", ["dsl", "compiler", "runtime", "conf"])
def test_every_import_is_allowed(folder):
    assert files(folder)
    assert [problem for path in files(folder) for problem in broken(path)] == []


def test_the_rooms_are_known():
    assert set(COMPOSING) < set(ROOMS) and "contracts" in ROOMS


def test_the_contracts_import_the_plan_alone():
    names = {name for path in files("runtime/contracts") for _, name in imports(path) if within(name, "guerdon")}
    assert all(within(n, "guerdon.runtime.contracts") or within(n, "guerdon.compiler.plan") for n in names)


def test_the_rules_see_lazy_imports_and_tables(tmp_path):
    assert ("guerdon.runtime.cli.check" in {n for _, n in imports(ROOT / "runtime" / "cli" / "main.py")})
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from guerdon.compiler import check\n")
    assert list(imports(bad)) == [(2, "guerdon.compiler.check")]
    assert not any(within("guerdon.compiler.check", p) for p in allowed("guerdon.runtime.verify.harness"))
