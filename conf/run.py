"""The root of `guerdon run`'s configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from guerdon.conf import policy, sandbox, store
from guerdon.conf.policy import MISSING

GROUPS: Mapping[str, Mapping[str, object]] = {
    "policy": policy.OPTIONS,
    "sandbox": sandbox.OPTIONS,
    "store": store.OPTIONS,
}


def _defaults() -> list[Any]:
    return [
        "_self_",
        {"policy": MISSING},
        {"sandbox": "podman"},
        {"store": "local"},
        *quiet(),
    ]


def quiet() -> list[Any]:
    """Our own run folder is the one output folder: Hydra shall write nothing beside it."""
    return [{"override hydra/job_logging": "disabled"}, {"override hydra/hydra_logging": "disabled"}]


def hydra_settings(command: str) -> dict[str, Any]:
    """Hydra's own part of a command's configuration."""
    return {
        "output_subdir": None,
        "run": {"dir": "${store.runs}"},
        "sweep": {"dir": "${store.runs}/sweeps", "subdir": "."},
        "job": {"chdir": False},
        "help": {"app_name": f"guerdon {command}"},
    }


@dataclass
class RunConf:
    """What to run (an empty selection means all) and, in the groups, who acts, where and into what."""

    defaults: list[Any] = field(default_factory=_defaults)
    samples: int = 1
    """Episodes a row."""
    seed: int = 0
    tasks: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    split: str = ""
    first: int = 0
    """Only this many rows of the selection; 0 for all."""
    reward: dict[str, Any] = field(default_factory=dict)
    """Weights, filled from the plan: `reward.<term>`, or `reward.<reward>.<term>` in a pack of several."""
    policy: Any = MISSING
    sandbox: Any = MISSING
    store: Any = MISSING
    hydra: Any = field(default_factory=lambda: hydra_settings("run"))
