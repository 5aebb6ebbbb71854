"""The standard library: verifier kinds, tools and images, declared in the language itself."""

from __future__ import annotations

from importlib import resources

PRELUDE = "std/kinds"
"""The file that every pack sees without importing it."""


def text(name: str) -> str | None:
    """The text of a std file by its import name (`std/task`, `std/python.task`), or None."""
    stem = name.removeprefix("std/").removesuffix(".task")
    if not name.startswith("std/") or not stem.isidentifier():
        return None
    entry = resources.files(__name__).joinpath(f"{stem}.task")
    return entry.read_text(encoding="utf-8") if entry.is_file() else None
