"""How episodes are run in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class RolloutConf:
    """Lockstep: the same seed gives the same numbers (docs/decisions/0008-lockstep.md)."""

    mode: str = "lockstep"
    width: int = 64
    """Episodes that are alive at once; 0 for all of a step."""
    retries: int = 2
    """Further tries, each in a new sandbox, after a fault of the infrastructure."""
    give_up_after: int = 8
    """Episodes in a row that may be lost to infrastructure before the run stops."""


OPTIONS: Mapping[str, object] = {"lockstep": RolloutConf()}
