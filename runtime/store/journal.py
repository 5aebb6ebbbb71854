"""The journal of one run: an append-only file of sealed episodes that survives a crash at any moment."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from guerdon.runtime.contracts.store import FolderBusy, StoreFault
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Outcome, Sealed
from guerdon.runtime.store.codec import decode, encode
from guerdon.runtime.store.durable import sync_folder, told, write_atomically, writing

FILE = "trajectories.jsonl"
QUARANTINE = "quarantine.jsonl"
LOCK = ".lock"

_HEAD, _MIDDLE, _TAIL = b'{"sealed":', b',"sha256":"', b'"}\n'


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept in memory of a sealed episode: where its line lies, and its outcome."""

    offset: int
    length: int
    outcome: Outcome


class FileJournal:
    """`trajectories.jsonl` in a run folder: one JSON line an episode, with the sha256 of its content.

    Opening takes the folder's lock, drops a torn last line and moves damaged ones to `quarantine.jsonl`;
    `notes` says in words what was found. Raises StoreFault.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.notes: list[str] = []
        self._latest: dict[str, Entry] = {}
        self._lock = take_lock(folder)
        try:
            with writing(self.path):
                self._recover()
                self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
                sync_folder(folder)
                self._size = os.fstat(self._file).st_size
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> FileJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and the lock; safe to call twice."""
        if self._lock >= 0:
            os.close(self._file)
            os.close(self._lock)
            self._lock = -1

    def seal(self, sealed: Sealed) -> bool:
        """Store an episode durably; False, and no change, when its key is sealed already. Raises StoreFault.

        An invalid episode is stored too, for people to see, but does not count as sealed.
        """
        episode = sealed.trajectory.episode
        if self.is_sealed(episode):
            return False
        line = _line(sealed)
        try:
            _write_all(self._file, line)
            os.fsync(self._file)
        except OSError as wrong:
            os.ftruncate(self._file, self._size)
            raise StoreFault(told(self.path, wrong)) from wrong
        self._latest[episode.key] = Entry(self._size, len(line), sealed.outcome)
        self._size += len(line)
        return True

    def is_sealed(self, episode: EpisodeSpec) -> bool:
        """Whether an episode needs no running; one that was invalid, by a fault of ours, runs again."""
        entry = self._latest.get(episode.key)
        return entry is not None and entry.outcome is not Outcome.INVALID

    def scan(self) -> Iterator[Sealed]:
        """All stored episodes in the order in which they were stored, invalid tries among them."""
        with self.path.open("rb") as file:
            for line in file:
                yield _read(line)

    def latest(self) -> Iterator[Sealed]:
        """The last entry of each episode, in the order in which these were stored."""
        with self.path.open("rb") as file:
            for entry in sorted(self._latest.values(), key=lambda e: e.offset):
                file.seek(entry.offset)
                yield _read(file.read(entry.length))

    def _recover(self) -> None:
        if not self.path.exists():
            return
        self._latest, bad = _index(self.path)
        torn = [line for line in bad if not line.endswith(b"\n")]
        damaged = [line for line in bad if line.endswith(b"\n")]
        if damaged:
            # Moved first, dropped after: a crash between the two leaves a line twice, never nowhere.
            _append(self.path.with_name(QUARANTINE), b"".join(damaged))
            write_atomically(self.path, _good_lines(self.path))
            self._latest, _ = _index(self.path)
            self.notes.append(
                f"{len(damaged)} damaged line(s) of {self.path.name} were moved to {QUARANTINE}; "
                "their episodes run again"
            )
        elif torn:
            os.truncate(self.path, self.path.stat().st_size - len(torn[0]))
        if torn:
            self.notes.append(
                f"the last line of {self.path.name} was torn (the run had been killed while writing it) "
                "and was dropped; its episode runs again"
            )


def peek(folder: Path) -> tuple[list[Sealed], int]:
    """The last entry of each episode in the order in which these were stored, and how many lines are not whole.

    For readers beside a writer: takes no lock and mends nothing. Raises OSError, and StoreFault where another version
    wrote an entry.
    """
    latest: dict[str, Sealed] = {}
    bad = 0
    with (folder / FILE).open("rb") as file:
        for line in file:
            try:
                sealed = _read(line)
            except ValueError:
                bad += 1
                continue
            latest.pop(sealed.trajectory.episode.key, None)
            latest[sealed.trajectory.episode.key] = sealed
    return list(latest.values()), bad


def _index(path: Path) -> tuple[dict[str, Entry], list[bytes]]:
    """Where the last good line of each episode lies, and the bad lines."""
    latest: dict[str, Entry] = {}
    bad: list[bytes] = []
    offset = 0
    with path.open("rb") as file:
        for line in file:
            try:
                sealed = _read(line)
            except ValueError:
                bad.append(line)
            else:
                latest[sealed.trajectory.episode.key] = Entry(offset, len(line), sealed.outcome)
            offset += len(line)
    return latest, bad


def _good_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                _read(line)
                yield line


def _line(sealed: Sealed) -> bytes:
    body = encode(sealed)
    return _HEAD + body + _MIDDLE + hashlib.sha256(body).hexdigest().encode() + _TAIL


def _read(line: bytes) -> Sealed:
    """Check and read one line. Raises ValueError when it is damaged, StoreFault when another version wrote it."""
    end = len(line) - len(_TAIL) - 64
    middle = end - len(_MIDDLE)
    framed = line.startswith(_HEAD) and line.endswith(_TAIL) and line[middle:end] == _MIDDLE
    body = line[len(_HEAD) : middle]
    if not framed or hashlib.sha256(body).hexdigest().encode() != line[end : end + 64]:
        raise ValueError("damaged line")
    try:
        return decode(body)
    except ValueError as wrong:
        # Whole, but not ours: it must be neither dropped nor run again.
        raise StoreFault(
            f"the journal holds an entry of another version ({wrong}); use the guerdon that wrote it, or another folder"
        ) from wrong


def take_lock(folder: Path) -> int:
    """Make a run folder this process's own until the descriptor is closed. Raises FolderBusy where it is another's."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise FolderBusy(
            f"another process (pid {holder}) is writing the run {folder}; wait for it or stop it"
        ) from None
    # The lock is held by the kernel; the pid is for people, and a full disk may do without.
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle


def _append(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        _write_all(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
