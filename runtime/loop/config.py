"""How a run is done: what is asked of it, and what of that decides its results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from guerdon.compiler.plan.canonical import Json, digest, dumps
from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.policy.table import deciding


class RunError(Exception):
    """The run cannot go on, or cannot begin; the message names the thing, what is wrong and the remedy."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What to run and how. Empty selections mean all; `concurrency` 0 means one a processor."""

    samples: int = 1
    seed: int = 0
    tasks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    split: str = ""
    first: int = 0
    """Only this many rows of the selection; 0 for all."""
    concurrency: int = 0
    retries: int = 2
    give_up_after: int = 8
    """Episodes in a row that may be lost to infrastructure before the run stops."""

    def deciding(self) -> Json:
        """What decides results: two runs that differ only elsewhere are the same run."""
        return {
            "samples": self.samples, "seed": self.seed, "tasks": list(self.tasks), "rows": list(self.rows),
            "split": self.split, "first": self.first,
        }


def folder_name(pack: str, policy: str, plan: str, cfg: RunConfig, settings: Mapping[str, Json]) -> str:
    """The run folder's name: the same command on the same plan names the same folder."""
    config = digest(dumps({"run": cfg.deciding(), "policy": policy, "settings": deciding(policy, settings)}))
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in pack)
    return f"{safe}-{policy}-{plan.removeprefix('sha256:')[:10]}-{config.removeprefix('sha256:')[:10]}"


def selected(instances: Iterator[InstancePlan], cfg: RunConfig) -> Iterator[InstancePlan]:
    """The rows that a run covers, in the plan's order."""
    count = 0
    for instance in instances:
        wanted = (
            (not cfg.tasks or instance.task in cfg.tasks)
            and (not cfg.rows or instance.row in cfg.rows)
            and (not cfg.split or instance.split == cfg.split)
        )
        if not wanted:
            continue
        if cfg.first and count >= cfg.first:
            return
        count += 1
        yield instance


def episode_seed(run_seed: int, task: str, row: str, sample: int) -> int:
    """A 63-bit seed of one episode, independent of the order in which episodes run."""
    key = dumps([run_seed, task, row, sample])
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1
