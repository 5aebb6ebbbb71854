"""Attacks made from a pack's own solution: the same calls, its Python files swapped for ones that cheat."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from guerdon.compiler.plan.schema import StepPlan
from guerdon.runtime.contracts.assets import expand
from guerdon.runtime.contracts.policy import Episode, Occasion
from guerdon.runtime.contracts.sandbox import PutFile
from guerdon.runtime.policy.demo import Playback, play, put_files
from guerdon.runtime.policy.equals_all import equals_all

Spoil = Callable[[bytes], bytes]


def exit0(source: bytes) -> bytes:
    """A module that ends its process with success as soon as it is imported."""
    return b"import os; os._exit(0)\n"


@dataclass(frozen=True, slots=True)
class CodeAttack:
    """The solution with each of its Python files spoiled.

    Where the solution writes none itself (a patch, a command), the environment's own Python files that a
    verifier collects are spoiled instead. Where there are none of these either, or where spoiling changes none of
    them, there is nothing to attack.
    """

    name: str
    spoil: Spoil

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        files = _written(occasion) or _collected(occasion)
        return (self.name,) if any(self.spoil(f.data) != f.data for f in files) else ()

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        solution = occasion.instance.solution
        if _written(occasion):
            return Playback(play(occasion, solution, self._rewrite))
        puts = tuple(
            StepPlan("put", path=f.path, content={"text": self.spoil(f.data).decode(errors="replace")})
            for f in _collected(occasion)
        )
        submits = tuple(step for step in solution if step.do == "call" and step.tool == "submit")
        return Playback(play(occasion, (*puts, *submits)))

    def _rewrite(self, file: PutFile) -> PutFile:
        return replace(file, data=self.spoil(file.data)) if file.path.endswith(".py") else file


def _written(occasion: Occasion) -> list[PutFile]:
    puts = [step for step in occasion.instance.solution if step.do == "put"]
    return [f for step in puts for f in put_files(occasion, step) if f.path.endswith(".py")]


def _collected(occasion: Occasion) -> list[PutFile]:
    if occasion.environment is None:
        return []
    globs = [re.compile(_pattern(glob)) for v in occasion.instance.verify for glob in v.collect]
    sources = (*occasion.environment.files, *occasion.instance.files)
    found = {f.path: f for path, digest in sources for f in expand(occasion.assets, path, digest)}
    return [
        f for path, f in sorted(found.items())
        if path.endswith(".py") and any(glob.fullmatch(path) for glob in globs)
    ]


def _pattern(glob: str) -> str:
    """A glob as a regular expression: `**` crosses folders, `*` and `?` do not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    words = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return "".join(words.get(part, re.escape(part)) for part in parts)


EXIT0 = CodeAttack("exit0", exit0)
EQUALS_ALL = CodeAttack("equals_all", equals_all)
