"""From what a person names (a pack, a .task file, a plan.json) to a plan that can be run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from guerdon.compiler.build import Weights
from guerdon.compiler.check import Compiled, compile_pack
from guerdon.compiler.plan.canonical import digest
from guerdon.compiler.plan.codec import PlanError, instance_from_json, plan_from_json
from guerdon.compiler.plan.schema import InstancePlan
from guerdon.dsl.render import RENDERERS
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.store import AssetFault
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.store.assets import AssetStore


def load(name: str, weights: Weights | None = None) -> LoadedPlan:
    """Compile a pack (or read a plan.json) and make its assets ready.

    `weights` replace written ones before anything is proved. Raises RunError (with the diagnostics) and AssetFault.
    """
    path = Path(name)
    store = AssetStore()
    if path.suffix == ".json":
        if weights:
            raise RunError(f"the weights of {name} are fixed and proved; name the pack itself to change them")
        return read_plan(path, store)
    compiled = compile_pack(path, weights)
    if compiled.plan is None:
        found = RENDERERS["full"](compiled.diagnostics)
        raise RunError(f"{name} does not compile\n\n{found}" if not weights else
                       f"{name} does not compile with these weights\n\n{found}")
    return keep(compiled, store)


def keep(compiled: Compiled, store: AssetStore) -> LoadedPlan:
    """Store the assets of a compiled pack. Raises AssetFault."""
    assert compiled.plan is not None and compiled.assets is not None
    for address, content in compiled.assets.items():
        if isinstance(content, bytes) or not store.has(address):
            _put(store, address, content)
    return LoadedPlan(compiled.plan, digest(compiled.plan_bytes), store, lambda: iter(compiled.instances),
                      compiled.plan_bytes)


def _put(store: AssetStore, address: str, content: Path | bytes) -> None:
    try:
        data = content if isinstance(content, bytes) else content.read_bytes()
    except OSError as problem:
        raise AssetFault(f"{content!s} cannot be read any more: {problem.strerror}; check it and try again") from None
    if store.put(data) != address:
        raise AssetFault(f"{content!s} changed while it was read; run the command again")


def read_plan(path: Path, store: AssetStore) -> LoadedPlan:
    """Read a plan.json; its assets and rows come from the store. Raises RunError."""
    try:
        data = path.read_bytes()
        plan = plan_from_json(json.loads(data))
    except OSError as problem:
        raise RunError(f"{path} cannot be read: {problem.strerror}; name a pack or a plan.json") from None
    except (ValueError, RecursionError) as problem:
        raise RunError(f"{path} is not JSON ({problem}); write it with `guerdon plan PACK -o {path}`") from None
    except PlanError as problem:
        raise RunError(f"{path} is no plan of this version: {problem}; "
                       f"write it with `guerdon plan PACK -o {path}`") from None

    def instances() -> Iterator[InstancePlan]:
        for line in store.read(plan.instances).splitlines():
            yield instance_from_json(json.loads(line))

    return LoadedPlan(plan, digest(data), store, instances, data)
