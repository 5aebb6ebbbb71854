"""`guerdon lock`: run what must be run once, and write guerdon.lock beside the pack."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from guerdon.compiler.check import compile_pack
from guerdon.compiler.lockfile import NAME, lock_bytes, merged, with_bases
from guerdon.compiler.pack import find_main
from guerdon.dsl.diagnostic import Severity
from guerdon.dsl.render import RENDERERS
from guerdon.runtime.cli.loading import keep
from guerdon.runtime.cli.trouble import attempt, provider
from guerdon.runtime.loop.lock import learn
from guerdon.runtime.schedule.stop import stop_on_signals
from guerdon.runtime.store.assets import AssetStore
from guerdon.runtime.store.durable import write_atomically


def main(argv: Sequence[str]) -> int:
    """Lock a pack; 1 if something could not be learned (what could is written)."""
    parser = argparse.ArgumentParser("guerdon lock", description="Learn what only running can tell.")
    parser.add_argument("path", metavar="PACK", help="a .task file, or the folder of a pack")
    options = parser.parse_args(argv)
    return attempt(lambda: _lock(options.path))


async def _lock(path: str) -> int:
    compiled = compile_pack(Path(path))
    sys.stderr.write(RENDERERS["full"]([d for d in compiled.diagnostics if d.severity is Severity.ERROR]))
    if compiled.plan is None:
        return 1
    if not compiled.plan.unlocked:
        print(f"{path}: nothing to lock")
        return 0
    plan = keep(compiled, AssetStore())
    made = await provider()
    try:
        with stop_on_signals(lambda text: print(text, file=sys.stderr)) as stop:
            learnt = await learn(plan, made, stop=stop)
    finally:
        await made.close()
    for problem in learnt["problems"]:
        print(f"warning: {problem}", file=sys.stderr)
    target = find_main(Path(path)).parent / NAME
    rows = {t: frozenset(i.row for i in compiled.instances if i.task == t) for t in compiled.plan.tasks}
    tests = merged(compiled.lock.entries, with_bases(learnt["tests"], compiled.bases), rows)
    write_atomically(target, [lock_bytes(tests)])
    left = compile_pack(Path(path)).plan
    print(f"{target}: {sum(map(len, tests.values()))} rows; commit it beside the pack")
    return int(bool(learnt["problems"]) or left is None or bool(left.unlocked))


