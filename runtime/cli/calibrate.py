"""`guerdon calibrate`: the oracle passes, and everything that does not solve the task fails."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Calibrate a pack; 1 if a bar is missed."""
    parser = argparse.ArgumentParser("guerdon calibrate", description="Run oracle, idle, exploits and attacks.")
    parser.add_argument("path", metavar="PACK", help="a pack's folder, a .task file or a plan.json")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where run folders go (default: runs)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="only the first N rows")
    parser.add_argument("--concurrency", type=int, default=0, metavar="N", help="episodes at once (default: CPUs)")
    options = parser.parse_args(argv)
    from guerdon.runtime.cli.trouble import attempt

    return attempt(lambda: _calibrate(options))


async def _calibrate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from guerdon.runtime.calibrate.calibrate import calibrate, lines
    from guerdon.runtime.cli.loading import load
    from guerdon.runtime.cli.trouble import provider
    from guerdon.runtime.loop.closing import close
    from guerdon.runtime.loop.config import RunConfig
    from guerdon.runtime.report.progress import Reporter
    from guerdon.runtime.schedule.stop import stop_on_signals

    plan = load(options.path)
    console = Console(stderr=True)
    # The signals stay ours until all is removed: a second Ctrl-C must not tear the clean-up.
    with Reporter(console) as reporter, stop_on_signals(reporter.note) as stop:
        made = await provider() if plan.plan.environments else None
        try:
            cfg = RunConfig(first=options.first, concurrency=options.concurrency)
            result = await calibrate(plan, made, Path(options.runs), cfg, watcher=reporter, stop=stop)
        finally:
            await close(made, reporter.note)
    print("\n".join(lines(result.to_json())))
    for line in (*map(str, result.missed[:20]), *result.gaps):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return result.status
