"""What the jobs of a sweep in processes of their own and the process that began them must know of each other."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

STOP, FAILED, HALTED = "stop", "failed", "halted"
"""Somebody wants to stop; a job is not well; the rest of the sweep would meet the same fault of the host."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Board:
    """A folder of empty files, one a fact, and of one a process: plain enough to outlive any of its users."""

    folder: Path

    def put(self, fact: str) -> None:
        """Say it to all; where the folder is gone, nobody is left to be told."""
        with suppress(OSError):
            (self.folder / fact).touch()

    def has(self, fact: str) -> bool:
        """Whether anybody said it."""
        return (self.folder / fact).exists()

    def tell_others(self) -> None:
        """Ask every process that is at a job to stop, as a terminal's Ctrl-C would."""
        for path in self.folder.glob("pid-*"):
            with suppress(OSError, ValueError):
                os.kill(int(path.name.removeprefix("pid-")), signal.SIGTERM)


@contextmanager
def began() -> Iterator[Board]:
    """A board for a sweep, and Ctrl-C as a wish that its processes are told of: killed at once, as the launcher would
    have it, they would leave their sandboxes behind."""
    with tempfile.TemporaryDirectory(prefix="guerdon-sweep-") as folder:
        board = Board(Path(folder))

        def wished() -> None:
            board.put(STOP)
            board.tell_others()

        with _caught(wished):
            yield board


@contextmanager
def at_a_job(board: Board) -> Iterator[None]:
    """This process works at a job of the board's sweep. A signal between two jobs must not tear what runs them, so that
    it is only noted, then and afterwards."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: board.put(STOP))
    mark = f"pid-{os.getpid()}"
    board.put(mark)
    try:
        yield
    finally:
        with suppress(OSError):
            (board.folder / mark).unlink()


@contextmanager
def _caught(wished: Callable[[], None]) -> Iterator[None]:
    before = {}
    for number in SIGNALS:
        with suppress(ValueError):  # outside the main thread, where no signal arrives
            before[number] = signal.signal(number, lambda *_: wished())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
