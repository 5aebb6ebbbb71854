"""`guerdon check`: diagnostics of one pack or several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from guerdon.compiler.check import Compiled, compile_pack
from guerdon.dsl.render import RENDERERS


def main(argv: Sequence[str]) -> int:
    """Compile each pack and print what was found; 1 if anything is an error (or, with --strict, a warning)."""
    parser = argparse.ArgumentParser("guerdon check", description="Compile packs and say what is wrong with them.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a .task file, or the folder of a pack")
    parser.add_argument("--format", choices=sorted(RENDERERS), default="full")
    parser.add_argument("--strict", action="store_true", help="warnings fail the check, too")
    options = parser.parse_args(argv)
    compiled = [compile_pack(Path(p)) for p in options.paths]
    found = [d for c in compiled for d in c.diagnostics]
    sys.stdout.write(RENDERERS[options.format](found))
    failed = [bool(c.errors or (options.strict and c.warnings)) for c in compiled]
    for path, one, bad in zip(options.paths, compiled, failed, strict=True):
        if options.format == "full" and not bad:
            print(_fine(path, one))
    return int(any(failed))


def _fine(path: str, compiled: Compiled) -> str:
    plan = compiled.plan
    assert plan is not None
    claims = [c for t in plan.tasks.values() for c in t.reward.claims]
    proved = sum(c.verdict == "proved" for c in claims)
    rows = sum(t.rows for t in plan.tasks.values())
    tasks = f"{len(plan.tasks)} task{'s' * (len(plan.tasks) != 1)}, {rows} row{'s' * (rows != 1)}"
    return f"{path}: ok: {tasks}, {proved} of {len(claims)} claims proved"
