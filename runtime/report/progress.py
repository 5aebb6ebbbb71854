"""How a run goes on, for people: a bar on a terminal, plain lines in a log, a table at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from guerdon.runtime.contracts.trajectory import Outcome, Sealed

LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Reporter:
    """Tells a console of a run; use as a context manager, so that the bar is taken down."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._counts = dict.fromkeys(Outcome, 0)
        self._total = self._done = 0
        self._title = ""
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *wrong: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, title: str, total: int, sealed: int) -> None:
        """A run begins: how many episodes it has, how many of them are sealed from before."""
        self._end()  # of the run before this one
        self._title, self._total, self._done = title, total, sealed
        self._counts = dict.fromkeys(Outcome, 0)
        before = f", {sealed} of them sealed before" if sealed else ""
        self.console.print(f"{printable(title)}: {total} episode(s){before}", markup=False, highlight=False)
        if self.console.is_terminal and total > sealed:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                console=self.console, transient=True,
            )
            self._task = self._bar.add_task(self._status(), total=total, completed=sealed)
            self._bar.start()

    def episode(self, sealed: Sealed) -> None:
        """An episode was sealed."""
        self._counts[sealed.outcome] += 1
        self._done += 1
        if sealed.outcome is Outcome.INVALID:
            self.note(f"invalid: {sealed.trajectory.episode.key}: {sealed.reason}")
        elif sealed.outcome is Outcome.FAIL and sealed.trajectory.episode.policy == "oracle":
            self.note(f"the solution fails: {sealed.trajectory.episode.key}: {sealed.reason}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=self._status())
        elif self._done == self._total or time.monotonic() - self._last_line > LINE_EVERY:
            self._last_line = time.monotonic()
            self.console.print(f"{self._done}/{self._total} {self._status()}", markup=False, highlight=False)

    def note(self, text: str) -> None:
        """Something that people should know."""
        self.console.print(f"note: {printable(text)}", markup=False, highlight=False)

    def _status(self) -> str:
        return " ".join(f"{outcome.value} {count}" for outcome, count in self._counts.items())


def table(summary: Mapping[str, Any]) -> Table:
    """The table of a run, from its summary.json."""
    made = Table("task", "policy", title_justify="left")
    for column in ("pass", "fail", "invalid", "mean reward"):
        made.add_column(column, justify="right")
    for row in summary["tasks"]:
        mean = "–" if row["mean_reward"] is None else f"{row['mean_reward']:.4f}"
        names = (escape(printable(row["task"])), escape(printable(row["policy"])))
        made.add_row(*names, str(row["pass"]), str(row["fail"]), str(row["invalid"]), mean)
    return made


def printable(text: str) -> str:
    """Text that cannot steer a terminal: control characters (escape sequences among them) are spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
