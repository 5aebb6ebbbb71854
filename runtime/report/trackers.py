"""Where the numbers of a training go beside the run folder's own files; none of them can end a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """Takes numbers of a step; steps may be negative (the supervised start) and never fall."""

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
    """A run of Weights & Biases that goes on under the folder's name."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import wandb

        self._run: Any = wandb.init(
            project="guerdon", id=folder.name[-64:], name=folder.name, resume="allow", dir=str(folder),
            config=dict(settings),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # Its own step may only rise from 0, ours begins below: it is logged as a number like the others.
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """A run of MLflow named by the folder, where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        import mlflow

        self._mlflow: Any = mlflow
        mlflow.set_experiment("guerdon")
        mlflow.start_run(run_name=folder.name)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


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
            self._tell(f"the tracker {self._name} has failed and is left out from here: {str(wrong)[:200]}")


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
            tell(f"the tracker {name} cannot be opened and is left out: {str(wrong)[:200]}")
    return tuple(made)
