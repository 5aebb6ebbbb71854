"""A name that does not exist, told with the nearest that does."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: str, known: Iterable[str]) -> str:
    """`did you mean 'grpo'?`, or all that there are."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def none_such(what: str, name: str, known: Iterable[str]) -> str:
    """There is no such thing, but the nearest is this."""
    return f"there is no {what} {name!r}; {hint(name, known)}"
