"""The report of a training run, with the same held-out rows before and after."""

from __future__ import annotations

from pathlib import Path

from guerdon.runtime.report.training import Sample, write_report
from guerdon.runtime.store.journal import FileJournal

ROWS = 4
"""Held-out rows that are shown, each from the first and from the last evaluation."""


def report(out: Path) -> Path:
    """Write report.html of a run folder. Raises StoreFault (somebody else writes the folder's episodes), OSError."""
    folders = sorted((out / "rollouts").glob("eval-*"))
    samples: list[Sample] = []
    for folder in dict.fromkeys([*folders[:1], *folders[-1:]]):
        with FileJournal(folder) as journal:
            episodes = sorted(journal.latest(), key=lambda one: one.trajectory.episode.key)
        when = f"after {int(folder.name.rpartition('-')[2])} updates"
        samples += [Sample(when, one) for one in episodes[:ROWS]]
    samples.sort(key=lambda one: one.sealed.trajectory.episode.row)  # before and after side by side
    return write_report(out, samples)
