"""`guerdon.lock`: what only running can tell, each entry tied to what it was learned from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guerdon.compiler.plan.canonical import Json, digest, dumps
from guerdon.compiler.plan.codec import to_json
from guerdon.compiler.plan.schema import EnvironmentPlan, VerifierPlan
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.source import Source, Span

LOCK_FORMAT = "guerdon.lock/1"
NAME = "guerdon.lock"


@dataclass(frozen=True)
class Lock:
    """The entries of a lock: task -> row -> verifier -> {basis, expect, failing_at_start}."""

    entries: Mapping[str, Any] = field(default_factory=dict)

    def tests(self, task: str, row: str, verifier: str, mark: str) -> dict[str, Json] | None:
        """The test ids learned for a verifier of a row, unless what they were learned from has changed."""
        entry = self.entries.get(task, {}).get(row, {}).get(verifier)
        if not isinstance(entry, dict) or entry.get("basis") != mark:
            return None
        return {"expect": entry["expect"], "failing_at_start": entry["failing_at_start"]}

    def knows(self, task: str, row: str, verifier: str) -> bool:
        """Whether there is an entry at all, of whatever basis."""
        return verifier in self.entries.get(task, {}).get(row, {})


def basis(plan: VerifierPlan, environment: EnvironmentPlan | None, files: tuple[tuple[str, str], ...],
          solution: tuple[object, ...]) -> str:
    """A digest of everything that decides which tests pass for the oracle and fail at the start."""
    return digest(dumps([to_json(plan.hidden), list(plan.collect), dict(plan.settings), to_json(environment),
                         to_json(files), to_json(solution)]))[7:39]


def read_lock(root: Path, found: list[Diagnostic]) -> Lock:
    """The lock beside a pack; an empty one if there is none; a broken one is an error (T504)."""
    path = root / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Lock()
    except (OSError, UnicodeDecodeError) as problem:
        return _broken(path, str(problem), found)
    try:
        data = json.loads(text)
        if data["format"] != LOCK_FORMAT:
            return _broken(path, f"its format is {data['format']!r}", found)
        return Lock(_checked(data["tests"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        return _broken(path, f"it is not what `guerdon lock` writes ({problem})", found)


def lock_bytes(tests: Mapping[str, Any]) -> bytes:
    """The text of a lock: canonical, but a line for each row so that a diff can be read."""
    tasks = []
    for task in sorted(tests):
        rows = [f"  {json.dumps(row)}:{dumps(tests[task][row]).decode().strip()}" for row in sorted(tests[task])]
        tasks.append(f" {json.dumps(task)}:{{\n" + ",\n".join(rows) + "\n }")
    return (f'{{"format":"{LOCK_FORMAT}","tests":{{\n' + ",\n".join(tasks) + "\n}}\n").encode()


def with_bases(tests: Mapping[str, Any], bases: Mapping[tuple[str, str, str], str]) -> dict[str, Any]:
    """What was learned, each entry tied to the basis of its (task, row, verifier)."""
    return {task: {row: {name: {"basis": bases[task, row, name], **entry} for name, entry in found.items()}
                   for row, found in rows.items()} for task, rows in tests.items()}


def merged(old: Mapping[str, Any], new: Mapping[str, Any], rows: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """Old entries of rows that still exist, overlaid by new ones."""
    result: dict[str, Any] = {}
    for task, known in rows.items():
        entries = {r: e for r, e in {**old.get(task, {}), **new.get(task, {})}.items() if r in known}
        if entries:
            result[task] = entries
    return result


def _checked(tests: Any) -> Mapping[str, Any]:
    for task in tests.values():
        for row in task.values():
            for entry in row.values():
                ids = (entry["expect"], entry["failing_at_start"])
                if not all(isinstance(i, list) for i in ids) or not all(
                        isinstance(i, str) for i in (*ids[0], *ids[1], entry["basis"])):
                    raise ValueError("a test id is no string")
    checked: Mapping[str, Any] = tests
    return checked


def _broken(path: Path, why: str, found: list[Diagnostic]) -> Lock:
    found.append(error("T504", f"`{NAME}` cannot be used: {why}", Span(Source(path.as_posix(), ""), 0, 0),
                       help="run `guerdon lock` again"))
    return Lock()
