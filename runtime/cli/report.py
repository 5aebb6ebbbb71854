"""`guerdon report RUN_FOLDER`: the page of a training run, also of one that is not at its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

USAGE = "usage: guerdon report RUN_FOLDER\n\nWrites report.html into the folder of a training run and names it."


def main(argv: Sequence[str]) -> int:
    """Write a run's report."""
    if len(argv) != 1 or argv[0].startswith("-"):
        asked = argv and argv[0] in ("-h", "--help")
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    folder = Path(argv[0])
    if not (folder / "metrics.jsonl").is_file():
        print(f"error: {folder} is no folder of a training run: it has no metrics.jsonl", file=sys.stderr)
        return 1
    from guerdon.runtime.contracts.store import StoreFault
    from guerdon.runtime.loop.training.reporting import report

    try:
        print(report(folder))
        return 0
    except (StoreFault, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
