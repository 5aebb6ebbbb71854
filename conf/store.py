"""Where results go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class StoreConf:
    """A folder on this machine: one run folder in it for each pack, policy, plan and configuration."""

    runs: str = "runs"


OPTIONS: Mapping[str, object] = {"local": StoreConf()}
