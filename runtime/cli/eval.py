"""`guerdon eval PACK policy=…`: `guerdon run` on the pack's held-out rows, and what it comes to as pass@k."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from guerdon.runtime.contracts.plan import LoadedPlan

USAGE = """usage: guerdon eval PACK policy=NAME [key=value …] [-m]

Runs a policy as `guerdon run` does (same keys, same run folders), on the pack's split `eval` where it has one and
no split= is given (split= for all rows), and writes pass@k with standard errors over rows to eval.json.
A served model: guerdon eval PACK policy=openai policy.base_url=http://127.0.0.1:8000/v1 policy.model=NAME samples=4"""
FILE = "eval.json"
HELD_OUT = "eval"


def main(argv: Sequence[str]) -> int:
    """Run a policy over a pack's held-out rows and sum it up."""
    if not argv or argv[0].startswith("-") or "=" in argv[0]:
        print(USAGE, file=sys.stderr if not argv or argv[0] not in ("-h", "--help") else sys.stdout)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    from rich.console import Console

    from guerdon.runtime.cli.loading import load
    from guerdon.runtime.cli.trouble import Problems, provider, report
    from guerdon.runtime.loop.app import run_app

    console = Console(stderr=True)
    try:
        plan = load(argv[0], {})
        words = held_out(list(argv[1:]), plan)
        return run_app(
            argv[0], words, lambda pack, weights: load(pack, weights) if weights else plan, provider, console,
            word="eval",
        )
    except Problems as problem:
        return report(problem)


def held_out(words: list[str], plan: LoadedPlan) -> list[str]:
    """The overrides, with the pack's held-out split where nobody chose rows."""
    chosen = any(word.lstrip("+").split("=")[0] in ("split", "rows") for word in words)
    has = any(HELD_OUT in task.splits for task in plan.plan.tasks.values())
    return words if chosen or not has else [*words, f"split={HELD_OUT}"]


def tell(out: Path, plan: LoadedPlan, console: Console) -> None:
    """Write eval.json beside a run's results, and show it. Raises StoreFault."""
    from guerdon.runtime.loop.passk import evaluation
    from guerdon.runtime.store.durable import write_atomically, writing

    with writing(out / FILE):
        digest = (out / "plan.digest").read_text().strip()  # with changed weights another one than `plan`'s
        found = {"plan": digest, **evaluation(out, plan.instances())}
        write_atomically(out / FILE, [json.dumps(found, indent=2).encode() + b"\n"])
    for group in found["groups"]:
        console.print(line(group), markup=False, highlight=False, soft_wrap=True)
    console.print(f"evaluation: {out / FILE}", markup=False, soft_wrap=True)


def line(group: Mapping[str, Any]) -> str:
    """One group for people: `eval/add (openai): pass@1 0.5000 ± 0.1200, …`."""
    from guerdon.runtime.report.progress import printable

    where = "all rows" if group["split"] == group["task"] == "all" else f"{group['split']}/{group['task']}"
    parts = [
        f"pass@{k} {one['mean']:.4f}" + ("" if one["stderr"] is None else f" ± {one['stderr']:.4f}")
        + ("" if one["rows"] == group["rows"] else f" (over {one['rows']} rows)")
        for k, one in group["pass_at"].items()
    ]
    invalid = f"; {group['invalid']} invalid, not counted" if group["invalid"] else ""
    return printable(f"{where} ({group['policy']}), {group['rows']} row(s): {', '.join(parts) or 'nothing'}{invalid}")
