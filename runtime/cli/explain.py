"""`guerdon explain`: the page of a diagnostic's code."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Print the page of a code."""
    from guerdon.dsl.pages import codes, page

    if len(argv) != 1 or argv[0] in ("-h", "--help"):
        print("usage: guerdon explain CODE\n\n" + " ".join(codes()))
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    text = page(argv[0].upper())
    if text is None:
        print(f"error: there is no code `{argv[0]}`; `guerdon explain --help` lists them", file=sys.stderr)
        return 2
    print(text, end="")
    return 0
