"""Writing so that a crash at any moment leaves the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, data: Iterable[bytes]) -> None:
    """Put pieces of `data` at `path` in one durable step; raises OSError and then leaves `path` as it was."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # noqa: PTH101 - mkstemp's 0600 would keep a shared store from being read
        os.replace(name, path)  # noqa: PTH105 - beside os.fsync: one level of calls
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's own entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
