"""The page of each code: what it means, an example that fails, and the same example mended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

_CODE = re.compile(r"T[0-9]{3}")
_EXAMPLE = re.compile(r"^```task (fails|passes)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced example of a page."""

    passes: bool
    text: str


def page(code: str) -> str | None:
    """The Markdown page of a code such as `T001`, or None if there is none."""
    if not _CODE.fullmatch(code):  # the code becomes a file name
        return None
    found = files("guerdon.dsl").joinpath("explain", f"{code}.md")
    return found.read_text(encoding="utf-8") if found.is_file() else None


def codes() -> list[str]:
    """Every code that has a page, in order."""
    names = (entry.name for entry in files("guerdon.dsl").joinpath("explain").iterdir())
    return sorted(name[:-3] for name in names if name.endswith(".md") and _CODE.fullmatch(name[:-3]))


def examples(text: str) -> list[Example]:
    """The examples of a page, in order: blocks fenced as ```` ```task fails ```` or ```` ```task passes ````."""
    return [Example(found[1] == "passes", found[2]) for found in _EXAMPLE.finditer(text)]
