"""A plan as the runtime is given it: the document, its digest, where its assets and rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from guerdon.compiler.plan.schema import InstancePlan, Plan
from guerdon.runtime.contracts.store import AssetReader


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A compiled pack, ready to run.

    `instances` begins a new pass over the rows each time it is called, in the plan's order; `document` is
    the plan's canonical JSON where it is at hand (it is copied into the run folder).
    """

    plan: Plan
    digest: str
    assets: AssetReader
    instances: Callable[[], Iterator[InstancePlan]]
    document: bytes = b""
