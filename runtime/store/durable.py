"""Writing so that a crash at any moment leaves the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from guerdon.runtime.contracts.store import StoreFault


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the block writes is at or below `path`: an OSError becomes a StoreFault that names it and the remedy."""
    try:
        yield
    except OSError as wrong:
        raise StoreFault(told(path, wrong)) from wrong


def told(path: Path, wrong: OSError) -> str:
    """Why something cannot be written, and what mends it."""
    if wrong.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full; make room and run the same command again: what was sealed stays"
    why = wrong.strerror or str(wrong)
    return f"{path} cannot be written: {why}; mend that or name another folder, then run the same command again"


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
