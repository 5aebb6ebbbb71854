"""The commands that are Hydra applications, by name; each is imported on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from guerdon.runtime.loop.command import RUN, Command


def _train() -> Command:
    from guerdon.runtime.loop.training.command import TRAIN

    return TRAIN


COMMANDS: Mapping[str, Callable[[], Command]] = {"run": lambda: RUN, "train": _train}
