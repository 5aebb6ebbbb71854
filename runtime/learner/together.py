"""What only the first rank does, agreed on by all: a fault there is a fault everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from guerdon.runtime.contracts.learner import LearnerFault


def on_first(action: Callable[[], None], doing: str) -> None:
    """Do something on rank 0 alone; a collective call. Raises LearnerFault on every rank where it failed there."""
    problem = ""
    if dist.get_rank() == 0:
        try:
            action()
        except (OSError, ValueError, LearnerFault) as error:
            problem = str(error) if isinstance(error, LearnerFault) else f"{doing}: {error}"
    raise_any([problem])


def all_do(action: Callable[[], None], doing: str) -> None:
    """Do something on every rank; a collective call. Raises LearnerFault on every rank where it failed on any.

    For reading and writing of files, where ranks may fail apart: what fails in between two collective calls of
    `action` itself would leave the others waiting, and must end the process instead.
    """
    problem = ""
    try:
        action()
    except (OSError, ValueError, LearnerFault) as error:
        problem = str(error) if isinstance(error, LearnerFault) else f"{doing}: {error}"
    raise_any([problem], everywhere=True)


def raise_any(problems: list[str], everywhere: bool = False) -> None:
    """Share the first problem (of rank 0, or of any rank) and raise it as a LearnerFault on every rank."""
    if everywhere:
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, problems[0])
        problems = [text for text in found if text][:1] or [""]
    else:
        dist.broadcast_object_list(problems, src=0)
    if problems[0]:
        raise LearnerFault(problems[0])
