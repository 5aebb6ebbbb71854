"""What lies where in a verification sandbox: the environment, then the collected artefacts in its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from guerdon.runtime.contracts.sandbox import Artefacts, PutFile

GRADER = "/grader"


@lru_cache(maxsize=1024)
def pattern(glob: str) -> re.Pattern[str]:
    """An absolute glob as a regular expression: `**` crosses folders, `*`, `?` and `[…]` do not."""
    out, i = "", 0
    while i < len(glob):
        if glob.startswith("**/", i):
            out, i = out + "(?:[^/]+/)*", i + 3
        elif glob.startswith("**", i):
            out, i = out + ".*", i + 2
        elif glob[i] in "*?":
            out, i = out + ("[^/]*" if glob[i] == "*" else "[^/]"), i + 1
        elif glob[i] == "[" and "]" in glob[i + 2 :]:
            end = glob.index("]", i + 2)
            body = glob[i + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, i = out + "(?!/)[" + ("^" + body[1:] if body[0] == "!" else body) + "]", end + 1
        else:
            out, i = out + re.escape(glob[i]), i + 1
    return re.compile(out, re.DOTALL)


def collected(path: str, globs: Sequence[str]) -> bool:
    """Whether a path is one of those that the agent hands in."""
    return any(pattern(glob).fullmatch(path) for glob in globs)


def place(environment: Sequence[PutFile], artefacts: Artefacts, collect: Sequence[str]) -> tuple[PutFile, ...]:
    """The candidate's side of the sandbox: no path of the environment below the globs survives, artefacts replace them.

    An artefact outside the globs, below `/grader`, with a `.` or `..` in its path, or in conflict with a file of the
    environment (one a folder of the other) is left out. Permission bits are cut to reading and executing.
    """
    kept = [f for f in environment if not collected(f.path, collect)]
    fixed = {f.path for f in kept}
    folders = {str(p) for f in kept for p in PurePosixPath(f.path).parents}
    placed = [
        PutFile(a.path, a.data, 0o555 if a.mode & 0o111 else 0o444)
        for a in artefacts.files
        if collected(a.path, collect) and _plain(a.path) and a.path not in folders
        and not any(str(p) in fixed for p in PurePosixPath(a.path).parents)
    ]  # fmt: skip
    return (*kept, *placed)


def _plain(path: str) -> bool:
    parts = path.split("/")
    inside = parts[0] == "" and len(parts) > 1 and not {"", ".", ".."} & set(parts[1:]) and "\0" not in path
    return inside and path != GRADER and not path.startswith(GRADER + "/")
