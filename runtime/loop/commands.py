"""The commands that are Hydra applications, by the word a person types; each is imported on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.loop.command import RUN, Command

After = Callable[[Path, LoadedPlan, Console], None]
"""Called with the folder of each job that came to its end, in this process or before."""


def _train() -> Command:
    from guerdon.runtime.loop.training.command import TRAIN

    return TRAIN


def _tell() -> After:
    from guerdon.runtime.cli.eval import tell

    return tell


COMMANDS: Mapping[str, Callable[[], Command]] = {"run": lambda: RUN, "eval": lambda: RUN, "train": _train}
AFTER: Mapping[str, Callable[[], After]] = {"eval": _tell}
