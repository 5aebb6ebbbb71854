"""How sandboxes are used: how many at once, and what is done when one is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class SandboxConf:
    """Podman sandboxes."""

    concurrency: int = 0
    """Episodes side by side; 0 means one a processor."""
    retries: int = 2
    """Further tries, each in a new sandbox, after a fault of the infrastructure."""
    give_up_after: int = 8
    """Episodes in a row that may be lost to infrastructure before the run stops."""


OPTIONS: Mapping[str, object] = {"podman": SandboxConf()}
