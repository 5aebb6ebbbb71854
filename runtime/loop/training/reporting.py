"""The report of a training run, with the same held-out rows before and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from guerdon.runtime.contracts.store import StoreFault
from guerdon.runtime.contracts.trajectory import Sealed
from guerdon.runtime.report.training import write_report
from guerdon.runtime.report.trajectories import Sample
from guerdon.runtime.store.journal import FILE, peek

ROWS = 4
"""Held-out rows that are shown, each from the first and from the last evaluation."""


def report(out: Path) -> Path:
    """Write report.html of a run folder, at its end or while it is being written. Raises OSError."""
    samples: list[Sample] = []
    troubles: list[str] = []
    folders = sorted(path.parent for path in out.glob(f"rollouts/eval-*/{FILE}"))
    for folder in dict.fromkeys([*folders[:1], *folders[-1:]]):
        step = folder.name.rpartition("-")[2].lstrip("0") or "0"
        when = f"after {step} update{'s' if step != '1' else ''}"
        samples += [Sample(when, one) for one in _first(folder, troubles)]
    samples.sort(key=lambda one: _place(one.sealed))  # before and after side by side
    return write_report(out, samples, troubles)


def refresh(out: Path, tell: Callable[[str], None]) -> None:
    """Write the report again; what goes wrong with it is told of, and ends no training."""
    try:
        report(out)
    except Exception as wrong:  # noqa: BLE001 - a page for people, made of files that are all there without it
        tell(f"report.html could not be written ({type(wrong).__name__}: {wrong}); "
             f"`guerdon report {out}` tries again")


def _first(folder: Path, troubles: list[str]) -> list[Sealed]:
    """The first rows of an evaluation, one episode each; nothing is chosen by how it went."""
    try:
        episodes, bad = peek(folder)
    except (OSError, StoreFault) as wrong:
        troubles.append(f"rollouts/{folder.name}: {wrong}")
        return []
    if bad:
        troubles.append(f"rollouts/{folder.name} holds {bad} line{'s' if bad > 1 else ''} that cannot be read")
    first = {_place(one)[:2]: one for one in sorted(episodes, key=_place, reverse=True)}
    return sorted(first.values(), key=_place)[:ROWS]


def _place(sealed: Sealed) -> tuple[str, str, int]:
    episode = sealed.trajectory.episode
    return episode.task, episode.row, episode.sample
