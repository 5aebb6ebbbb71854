"""What a run writes as it goes: metrics that the same seed repeats to the byte, and times that nothing repeats."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from guerdon.runtime.loop.training.measures import finite
from guerdon.runtime.report.trackers import Tracker
from guerdon.runtime.store.durable import write_atomically, writing

METRICS, TIMES = "metrics.jsonl", "times.jsonl"


@dataclass(frozen=True, slots=True)
class Records:
    """The two files of a run folder, and whatever else listens."""

    out: Path
    trackers: Sequence[Tracker] = ()

    def log(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """The numbers of a step (`kind` is warm, train or eval). Raises StoreFault."""
        kept = finite(values)
        self._append(METRICS, step, kind, kept)
        for tracker in self.trackers:
            tracker.log(step, {f"{kind}/{key}": value for key, value in sorted(kept.items())})

    def spent(self, step: int, kind: str, seconds: Mapping[str, float]) -> None:
        """The seconds of a step by stage. Raises StoreFault."""
        self._append(TIMES, step, kind, {key: round(value, 4) for key, value in seconds.items()})

    def back_to(self, step: int) -> None:
        """Drop what was written of steps after `step`: they are done again. Raises StoreFault."""
        for name in (METRICS, TIMES):
            path = self.out / name
            if path.exists():
                kept = [line for line in path.read_bytes().splitlines(keepends=True) if _step(line, step + 1) <= step]
                with writing(path):
                    write_atomically(path, kept)

    def _append(self, name: str, step: int, kind: str, values: Mapping[str, float]) -> None:
        line = json.dumps({"step": step, "kind": kind, **dict(sorted(values.items()))}, allow_nan=False)
        path = self.out / name
        with writing(path), path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _step(line: bytes, torn: int) -> int:
    """The step of a line; one that a crash cut off counts as `torn`."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return torn


def read(out: Path, name: str = METRICS) -> list[dict[str, float | str]]:
    """The lines of a file; [] where there is none."""
    path = out / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
