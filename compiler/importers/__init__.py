"""Importers: known data sets become packs. Each is one file and one row in the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from guerdon.compiler.importers import humaneval

IMPORTERS: dict[str, Callable[[Path | None, Path], int]] = {"humaneval": humaneval.make_pack}
"""Name -> function(source file or None, folder of the pack) -> number of rows; raises ImportProblem."""
