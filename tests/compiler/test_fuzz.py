"""Mutated packs: whatever stands in a file, compiling it reports and never raises, and every finding has a place."""

from __future__ import annotations

import os
import random
import re
import shutil
import traceback
from pathlib import Path

import pytest

from guerdon.compiler.check import Compiled, compile_pack
from guerdon.dsl.render import RENDERERS

PACKS = Path(__file__).parents[1] / "packs"
NAMES = ("data", "doc", "fix_bug", "math", "ops", "swe")
MUTANTS = int(os.environ.get("GUERDON_MUTANTS", "25"))
TOKEN = re.compile(r'"""(?s:.*?)"""|"[^"\n]*"|#[^\n]*|[A-Za-z_]\w*|\d+(?:\.\d+)?[A-Za-z]*|\.\.|[<>=!]=|\s+|(?s:.)')
HUGE = " * ".join(["1e300"] * 15)
SPICE = (
    *"row slim bash submit repo none true 1 -1 0.5 1e300 30s 2MiB row.level idle solved total limit trajectory".split(),
    *"trajectory.turns fact ensure milestone secret list[string] for in not and strictly outranks = { } ( ) ;".split(),
    '""', '"x"', '"${row}"', '"/grader/x"', '"../x"', '"gold"', "[]", "[row]", "[1, 2s]", "{ }", "()", "1 / 0", HUGE,
    "if true then 1 else 2", "anneal(1, 0, over = 2)", 'file("x")', 'dir("gold")', 'tag("a")', "port(0)", "rises with",
    "\n", "\u2028", "\x00", "\ufeff", "é",
)


def mutated(text: str, random: random.Random) -> str:
    """A text with one to four of its tokens deleted, doubled, swapped, moved, or replaced by others."""
    tokens = TOKEN.findall(text)
    solid = [i for i, t in enumerate(tokens) if not t.isspace()]
    for _ in range(random.randint(1, 4)):
        at, other = random.choice(solid), random.choice(solid)
        match random.randrange(6):
            case 0:
                tokens[at] = ""
            case 1:
                tokens[at] += " " + tokens[at]
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = tokens[other]
            case 4:
                tokens[at] = random.choice(SPICE)
            case 5:
                tokens[at] += " " + random.choice(SPICE)
    return "".join(tokens)


def faults(compiled: Compiled) -> list[str]:
    """What no result may be: findings without a place, plans beside errors, no plan without errors."""
    wrong = [f"no place: {d.code} {d.message}" for d in compiled.diagnostics if d.span is None]
    wrong += [f"no remedy: {d.code} {d.message}" for d in compiled.diagnostics if not d.help]
    if (compiled.plan is None) != (compiled.errors > 0):
        wrong.append(f"plan {compiled.plan is not None} with {compiled.errors} errors")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_no_mutation_of_a_pack_crashes_the_compiler(name: str, tmp_path: Path) -> None:
    pack = tmp_path / name
    shutil.copytree(PACKS / name, pack)
    text = (pack / f"{name}.task").read_text(encoding="utf-8")
    dice = random.Random(os.environ.get("GUERDON_SEED", "1") + name)
    problems: dict[str, str] = {}
    for _ in range(MUTANTS):
        mutant = mutated(text, dice)
        (pack / f"{name}.task").write_text(mutant, encoding="utf-8")
        try:
            compiled = compile_pack(pack)
            RENDERERS["full"](compiled.diagnostics)
            wrong = faults(compiled)
        except Exception:  # noqa: BLE001 - any exception is what this test looks for
            wrong = [traceback.format_exc().strip()]
        for problem in wrong:
            problems.setdefault(problem[-600:], mutant)
    for number, (problem, mutant) in enumerate(problems.items()):
        (tmp_path / f"mutant{number}.task").write_text(mutant, encoding="utf-8")
        print(problem, tmp_path / f"mutant{number}.task", sep="\n", end="\n\n")
    assert not problems
