"""Diagnostics to text: one small file each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from guerdon.dsl.diagnostic import Diagnostic
from guerdon.dsl.render import concise, full, json_

RENDERERS: dict[str, Callable[[Sequence[Diagnostic]], str]] = {
    "full": full.render,
    "concise": concise.render,
    "json": json_.render,
    "jsonl": json_.render_lines,
}
"""Name of a `--format` to its renderer; each text ends with a line end unless it is empty."""
