"""`guerdon run PACK policy=… [overrides]`: see runtime/loop/app.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = """usage: guerdon run PACK policy=NAME [key=value …] [-m]

PACK is a pack's folder, a .task file or a plan.json. Policies: oracle, idle, refusal, quit, exploit, scripted,
exit0, equals_all, openai. Some keys: samples=4 seed=1 rows=[a,b] split=eval first=10 sandbox.concurrency=4
store.runs=DIR reward.TERM=0.5. With -m, commas sweep: policy=oracle,idle. The same command again resumes."""


def main(argv: Sequence[str]) -> int:
    """Run a policy over a pack."""
    if not argv or argv[0].startswith("-") or "=" in argv[0]:
        print(USAGE, file=sys.stderr if not argv or argv[0] not in ("-h", "--help") else sys.stdout)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    from guerdon.runtime.cli.loading import load
    from guerdon.runtime.cli.trouble import Problems, provider, report
    from guerdon.runtime.loop.app import run_app

    try:
        return run_app(argv[0], list(argv[1:]), load, provider)
    except Problems as problem:
        return report(problem)
