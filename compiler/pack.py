"""A pack on disk: the one place where the compiler reads files, all below the pack's folder."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from guerdon.compiler.plan.canonical import digest, dumps

SKIPPED = frozenset({".git", "__pycache__", ".DS_Store", ".pytest_cache"})
MAX_ASSET = 1 << 30


class PackError(Exception):
    """A path of the pack cannot be used; the message says why, `remedy` what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass
class Pack:
    """The folder of a pack and the assets that were named so far (digest -> file, or bytes made here)."""

    root: Path
    assets: dict[str, Path | bytes] = field(default_factory=dict)
    _files: dict[Path, str] = field(default_factory=dict)
    _trees: dict[Path, str] = field(default_factory=dict)

    def locate(self, relative: str) -> Path:
        """The real path of a file or folder of the pack; raises PackError if it is outside or missing."""
        pure = PurePosixPath(relative)
        if pure.is_absolute() or ".." in pure.parts or "\0" in relative or not relative:
            raise PackError(f"`{relative}` is not a path inside the pack", "give a path relative to the .task file")
        path = self.root / pure
        try:
            real = Path(os.path.realpath(path))
            exists = real.exists()
        except (OSError, ValueError) as problem:  # a name too long, or one that no file can have
            raise PackError(f"`{_short(relative)}` cannot be looked up: {_reason(problem)}",
                            "correct the path") from None
        if not real.is_relative_to(os.path.realpath(self.root)):
            raise PackError(f"`{relative}` is a link that leads out of the pack",
                            "copy the file into the pack; a plan holds only what the pack holds")
        if not exists:
            raise PackError(f"`{relative}` does not exist", f"create {path} or correct the path")
        return path

    def asset(self, relative: str) -> str:
        """The address of a file or a folder of the pack."""
        path = self.locate(relative)
        return self.tree(relative) if path.is_dir() else self.file(relative)

    def file(self, relative: str) -> str:
        """The address of a file; raises PackError."""
        path = self.locate(relative)
        if not path.is_file():
            if path.is_dir():
                raise PackError(f"`{relative}` is a folder", f'write dir("{relative}")')
            raise PackError(f"`{relative}` is no plain file", "copy what it holds into a plain file")
        return self._hash(path, relative)

    def tree(self, relative: str) -> str:
        """The address of a folder: of its manifest, in path order; raises PackError."""
        path = self.locate(relative)
        if not path.is_dir():
            raise PackError(f"`{relative}` is a file", f'write file("{relative}")')
        if path not in self._trees:
            try:
                entries = sorted(self._walk(path, relative))
            except OSError as problem:
                raise PackError(f"`{relative}` cannot be read: {_reason(problem)}",
                                f"check the rights of {path} and of what it holds") from None
            manifest = dumps([list(e) for e in entries])
            name = digest(manifest)
            self.assets[name] = manifest
            self._trees[path] = f"tree-{name}"
        return self._trees[path]

    def text(self, content: str) -> str:
        """The address of a text that the plan itself makes."""
        name = digest(content.encode())
        self.assets[name] = content.encode()
        return name

    def _walk(self, folder: Path, relative: str) -> list[tuple[str, int, str]]:
        entries: list[tuple[str, int, str]] = []
        pending = [folder]
        while pending:
            here = pending.pop()
            for entry in sorted(os.scandir(here), key=lambda e: e.name):
                if entry.name in SKIPPED:
                    continue
                if not entry.name.isprintable():
                    raise PackError(f"`{relative}` holds a file whose name is no printable UTF-8: {entry.name!r}",
                                    "rename the file")
                name = Path(entry.path).relative_to(folder).as_posix()
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    pending.append(Path(entry.path))
                elif stat.S_ISREG(mode):
                    # Only "executable or not" survives, so that no umask or checkout changes a digest.
                    entries.append((name, 0o755 if mode & 0o100 else 0o644, self._hash(Path(entry.path), name)))
                else:
                    raise PackError(f"`{relative}/{name}` is neither a file nor a folder",
                                    "replace links and devices by plain files")
        return entries

    def _hash(self, path: Path, shown: str) -> str:
        if path not in self._files:
            try:
                size = path.stat().st_size
                if size > MAX_ASSET:
                    raise PackError(f"`{shown}` has {size} bytes, more than an asset may have ({MAX_ASSET})",
                                    "put large data into the image")
                with path.open("rb") as stream:
                    name = "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as problem:
                reason = f"`{shown}` cannot be read: {problem.strerror}"
                raise PackError(reason, f"check the rights of {path}") from None
            self._files[path] = name
            self.assets[name] = path
        return self._files[path]


def _reason(problem: Exception) -> str:
    return (getattr(problem, "strerror", None) or "it is not a name that a file can have").lower()


def _short(relative: str) -> str:
    """A path as a message shows it, whatever is in it."""
    shown = relative.encode(errors="backslashreplace").decode()
    return shown if len(shown) <= 80 else shown[:77] + "…"


def find_main(path: Path) -> Path:
    """The `.task` file that a person means by a file or a folder; raises PackError."""
    try:
        if path.is_file():
            if path.suffix != ".task":
                raise PackError(f"{_short(str(path))} is no .task file", "give a .task file or the folder of a pack")
            return path
        is_folder = path.is_dir()
    except (OSError, ValueError) as problem:
        raise PackError(f"{_short(str(path))} cannot be looked up: {_reason(problem)}", "correct the path") from None
    if not is_folder:
        raise PackError(f"{path} does not exist", "give a .task file or the folder of a pack")
    candidates = sorted(path.glob("*.task"))
    for preferred in (path / "pack.task", path / f"{path.resolve().name}.task"):
        if preferred in candidates:
            return preferred
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise PackError(f"{path} holds no .task file", "give the folder of a pack, or write one")
    names = ", ".join(c.name for c in candidates)
    raise PackError(f"{path} holds several .task files ({names})", "name one, or call the main one pack.task")
