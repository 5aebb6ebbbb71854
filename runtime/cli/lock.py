"""`guerdon lock`: run what must be run once, and write guerdon.lock beside the pack."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from guerdon.compiler.check import Compiled, compile_pack
from guerdon.compiler.lockfile import NAME, lock_bytes, merged, with_bases
from guerdon.compiler.pack import find_main
from guerdon.dsl.diagnostic import Severity
from guerdon.dsl.render import RENDERERS
from guerdon.runtime.cli.loading import keep
from guerdon.runtime.cli.trouble import attempt, provider
from guerdon.runtime.loop.closing import close
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.lock import learn
from guerdon.runtime.schedule.stop import stop_on_signals
from guerdon.runtime.store.assets import AssetStore
from guerdon.runtime.store.durable import write_atomically, writing

BROKEN_LOCK = "T504"


def main(argv: Sequence[str]) -> int:
    """Lock a pack; 1 if something could not be learned (what could is written)."""
    parser = argparse.ArgumentParser("guerdon lock", description="Learn what only running can tell.")
    parser.add_argument("path", metavar="PACK", help="a .task file, or the folder of a pack")
    options = parser.parse_args(argv)
    return attempt(lambda: _lock(options.path))


async def _lock(path: str) -> int:
    if path.endswith(".json"):
        raise RunError(f"{path} is a plan, and a lock belongs to a pack; name the pack that the plan was made of")
    compiled = _compiled(Path(path))
    sys.stderr.write(RENDERERS["full"]([d for d in compiled.diagnostics if d.severity is Severity.ERROR]))
    if compiled.plan is None:
        return 1
    if not compiled.plan.unlocked:
        print(f"{path}: nothing to lock: every expected test id is known")
        return 0
    target = find_main(Path(path)).parent / NAME
    plan = keep(compiled, AssetStore())
    _refuse_unwritable(target)
    with stop_on_signals(_say) as stop:
        made = await provider()
        try:
            learnt = await learn(plan, made, stop=stop)
        finally:
            await close(made, _say)
    for problem in learnt["problems"]:
        print(f"warning: {problem}", file=sys.stderr)
    rows = {t: frozenset(i.row for i in compiled.instances if i.task == t) for t in compiled.plan.tasks}
    tests = merged(compiled.lock.entries, with_bases(learnt["tests"], compiled.bases), rows)
    with writing(target):
        write_atomically(target, [lock_bytes(tests)])
    left = compile_pack(Path(path)).plan
    count = sum(map(len, tests.values()))
    print(f"{target}: {count} row{'s' * (count != 1)}; commit it beside the pack")
    return int(bool(learnt["problems"]) or left is None or bool(left.unlocked))


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _compiled(path: Path) -> Compiled:
    """The pack; a lock that cannot be read is what this command replaces, so it must not keep it from that."""
    compiled = compile_pack(path)
    if [d.code for d in compiled.diagnostics if d.severity is Severity.ERROR] != [BROKEN_LOCK]:
        return compiled
    target = find_main(path).parent / NAME
    aside = target.with_name(f"{NAME}.broken")
    with writing(aside):
        target.rename(aside)
    print(f"{target} could not be used and was moved to {aside.name}; all of it is learnt anew", file=sys.stderr)
    return compile_pack(path)


def _refuse_unwritable(target: Path) -> None:
    """Say before minutes of work that its result could not be kept. Raises StoreFault."""
    with writing(target), tempfile.TemporaryFile(dir=target.parent):
        pass
