"""Where the numbers of a training go beside the run folder's own files; none of them can end a training."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

PROJECT = "guerdon"
"""What runs are kept under where a service asks and its own environment variable does not say."""


class Tracker(Protocol):
    """Takes the numbers of steps: of negative ones in the supervised start, and in a run that is gone on with of those
    after its last checkpoint again."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


Maker = Callable[[Path, Mapping[str, Any]], Tracker]


class _TensorBoard:
    """Event files below `tensorboard/`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """A run of Weights & Biases in the project `guerdon` (or WANDB_PROJECT) that goes on under the folder's name."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), id=_identity(folder.name), name=folder.name,
            resume="allow", dir=str(folder), config=dict(settings),
        )
        # Its own step may only rise from 0, ours begins below and falls back when a run is gone on with: it is logged
        # as a number like the others, and the charts are told to be drawn along it.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """A run of MLflow named and found again by the folder's name, in the experiment `guerdon` (or
    MLFLOW_EXPERIMENT_NAME), where MLFLOW_TRACKING_URI says.

    Through a client of its own: MLflow's one active run of a process would be shared by the jobs of a sweep.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import mlflow
        from mlflow.entities import Metric

        self._metric = Metric
        self._client: Any = mlflow.MlflowClient()
        self._run = self._begun(folder.name, self._experiment())
        self._client.log_dict(self._run, dict(settings), "config.json")

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        there = self._client.get_experiment_by_name(name)
        return str(there.experiment_id if there else self._client.create_experiment(name))

    def _begun(self, name: str, experiment: str) -> str:
        asked = f"tags.guerdon_run = '{_identity(name)}'"
        for run in self._client.search_runs([experiment], filter_string=asked, max_results=1):
            self._client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
        made = self._client.create_run(experiment, tags={"guerdon_run": _identity(name)}, run_name=name)
        return str(made.info.run_id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)  # MLflow wants to know when; nothing of ours reads it
        self._client.log_batch(self._run, metrics=[self._metric(k, v, now, step) for k, v in values.items()])

    def close(self) -> None:
        self._client.set_terminated(self._run)


def _identity(name: str) -> str:
    """A folder's name as an id that every service takes: of letters, digits, `-`, `_` and `.`, 64 at most, where it
    must be changed with a digest of the whole name, so that two names stay two."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name)
    if plain == name and len(name) <= 64:
        return name
    return f"{plain[:51]}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:12]}"


TRACKERS: Mapping[str, Maker] = {"tensorboard": _TensorBoard, "wandb": _Wandb, "mlflow": _MLflow}


class _Careful:
    """A tracker whose first failure is told, and which is left alone from then on."""

    def __init__(self, name: str, inner: Tracker, tell: Callable[[str], None]) -> None:
        self._name, self._inner, self._tell = name, inner, tell
        self._lost = False

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._try(lambda: self._inner.log(step, values))

    def close(self) -> None:
        self._try(self._inner.close)

    def _try(self, work: Callable[[], None]) -> None:
        if self._lost:
            return
        try:
            work()
        except Exception as wrong:  # noqa: BLE001 - whatever a foreign service does, training goes on
            self._lost = True
            self._tell(f"the tracker {self._name} has failed and is left out from here: {_line(wrong)}; "
                       "metrics.jsonl has every number")


def _line(wrong: Exception) -> str:
    """What a foreign package says, as part of one line."""
    return " ".join(str(wrong).split())[:200] or type(wrong).__name__


def make_trackers(
    names: Sequence[str], folder: Path, settings: Mapping[str, Any], tell: Callable[[str], None]
) -> tuple[Tracker, ...]:
    """Open trackers by name; one that cannot be opened is told of, with the remedy, and left out."""
    made: list[Tracker] = []
    for name in names:
        try:
            made.append(_Careful(name, TRACKERS[name](folder, settings), tell))
        except ImportError as wrong:
            tell(f"the tracker {name} needs a package that is not installed ({wrong.name}): pip install {name}")
        except Exception as wrong:  # noqa: BLE001 - as above
            tell(f"the tracker {name} cannot be opened and is left out: {_line(wrong)}")
    return tuple(made)
