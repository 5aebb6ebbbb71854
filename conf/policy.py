"""Who acts: `policy=oracle`, `policy=scripted policy.script=turns.yaml` …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MISSING = "???"
"""OmegaConf's word for a value that must be given."""


@dataclass
class PolicyConf:
    """A policy that needs no settings."""

    name: str = MISSING


@dataclass
class ScriptedConf:
    """Turns from a file."""

    name: str = "scripted"
    script: str = MISSING
    """Path of the script: YAML or JSON."""


OPTIONS: Mapping[str, object] = {
    **{
        name: PolicyConf(name)
        for name in ("oracle", "idle", "refusal", "quit", "exploit", "exit0", "equals_all")
    },
    "scripted": ScriptedConf(),
}
