"""What only the first rank does, agreed on by all: a fault there is a fault everywhere."""

from __future__ import annotations

from collections.abc import Callable

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
    box = [problem]
    dist.broadcast_object_list(box, src=0)
    if box[0]:
        raise LearnerFault(box[0])
