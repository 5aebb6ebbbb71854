"""`guerdon plan`: what a pack compiles to, for people or (with -o) for the runtime."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from guerdon.compiler.check import compile_pack
from guerdon.compiler.plan.canonical import digest, parse_rational
from guerdon.compiler.plan.schema import EnvironmentPlan, Plan, TaskPlan
from guerdon.compiler.types import decimal
from guerdon.dsl.render import RENDERERS
from guerdon.runtime.cli.loading import keep
from guerdon.runtime.contracts.store import AssetFault
from guerdon.runtime.store.assets import AssetStore
from guerdon.runtime.store.durable import write_atomically


def main(argv: Sequence[str]) -> int:
    """Print the plan, or write plan.json and the assets it names."""
    parser = argparse.ArgumentParser("guerdon plan", description="Compile a pack and show or write its plan.")
    parser.add_argument("path", metavar="PACK", help="a .task file, or the folder of a pack")
    parser.add_argument("-o", metavar="FILE", help="write the plan here and its assets into the store")
    parser.add_argument("--store", metavar="DIR", help="the asset store (default: $GUERDON_HOME/assets)")
    options = parser.parse_args(argv)
    compiled = compile_pack(Path(options.path))
    sys.stderr.write(RENDERERS["full"](compiled.diagnostics))
    if compiled.plan is None:
        return 1
    if options.o is None:
        print("\n".join(describe(compiled.plan, digest(compiled.plan_bytes))))
        return 0
    try:
        keep(compiled, AssetStore(Path(options.store)) if options.store else AssetStore())
        write_atomically(Path(options.o), [compiled.plan_bytes])
    except (AssetFault, OSError) as problem:
        reason = f"{options.o} cannot be written: {problem.strerror}" if isinstance(problem, OSError) else problem
        print(f"error: {reason}", file=sys.stderr)
        return 1
    print(f"{options.o}: {digest(compiled.plan_bytes)}")
    return 0


def describe(plan: Plan, address: str) -> Iterator[str]:
    """The plan as a person reads it."""
    yield f"pack {plan.pack}  {address}"
    for name, image in plan.images.items():
        yield f"image {name}: {image.kind} {', '.join(image.packages) or image.reference or '(nothing added)'}"
    for key, environment in plan.environments.items():
        yield _environment(key, environment)
    for task in plan.tasks.values():
        yield from _task(task)
    for what in plan.unlocked:
        yield f"unlocked: {what}"


def _environment(key: str, plan: EnvironmentPlan) -> str:
    return (f"environment {key}: image {plan.image}, {plan.cpu_milli / 1000:g} cpu, {plan.memory >> 20} MiB memory, "
            f"{plan.disk >> 20} MiB disk, {plan.pids} processes, network {plan.network}")


def _task(task: TaskPlan) -> Iterator[str]:
    shares = ", ".join(f"{n} {name}" for name, n in sorted(task.splits.items()) if name)
    yield f"task {task.name}: {task.rows} rows" + (f" ({shares})" if shares else "")
    limits = task.limits
    yield (f"  limits: {limits.turns} turns, {limits.tokens if limits.tokens is not None else 'any number of'} tokens, "
           f"{limits.wall_ms / 1000:g} s; tools: {', '.join(t.name for t in task.tools) or 'none'}")
    low, high = (decimal(parse_rational(x)) for x in (task.reward.low, task.reward.high))
    yield f"  reward {task.reward.name} in {low}..{high}"
    for term in task.reward.terms:
        yield f"    {term.name}: weight {decimal(parse_rational(term.default))}"
    for claim in task.reward.claims:
        yield f"    {claim.verdict}: {claim.text}" + (f" ({claim.detail})" if claim.detail else "")
    for what in task.not_yet:
        yield f"  not run by this version: {what}"
