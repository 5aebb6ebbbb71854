"""What an importer raises, and the rules that all of them keep when they write a pack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class ImportProblem(Exception):
    """The source or the target cannot be used; the message names it and the remedy."""


def write_pack(folder: Path, files: Mapping[str, str], mark: str) -> None:
    """Write the files of a pack; only into a new or empty folder, or over a pack whose first line is `mark`.

    Raises ImportProblem.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise ImportProblem(f"{folder} is a file; name a folder that does not exist yet")
        if folder.is_dir() and any(folder.iterdir()) and not _made_by(folder, mark):
            raise ImportProblem(f"{folder} is not empty; name a folder that does not exist yet")
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as problem:
        raise ImportProblem(f"{folder} cannot be written: {problem.strerror}; choose another folder") from None


def _made_by(folder: Path, mark: str) -> bool:
    return any(p.read_text(encoding="utf-8", errors="replace").startswith(mark) for p in folder.glob("*.task"))
