"""Checkpoints of model, optimizer, reference policy, random state and version, readable in any layout.

Written by Megatron-core's `dist_checkpointing` into a folder beside, made durable, then renamed: a folder under its
own name is whole. `guerdon.json` is written last and names every file with its size and sha256.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner import optimizer as optimizers
from guerdon.runtime.learner import together
from guerdon.runtime.learner.decode import sizes

if TYPE_CHECKING:
    from guerdon.runtime.learner.engine import Engine

MANIFEST = "guerdon.json"
FORMAT = 1
REFERENCE = "reference."


def save(engine: Engine, folder: Path) -> None:
    """Write a checkpoint into `folder`, which must not exist; a collective call. Raises LearnerFault."""
    from megatron.core import dist_checkpointing

    beside = folder.with_name(f".{folder.name}.partial")
    failed = f"checkpoint {folder} cannot be written"
    together.on_first(lambda: _prepare(engine, folder, beside), failed)
    _without_manager()
    state = {"rng": torch.get_rng_state(), "version": engine.version, **sharded(engine, loading=False)}
    try:
        dist_checkpointing.save(state, str(beside))
    except CheckpointException as error:
        # Of several ranks only some are told; they must end, or the others would wait for them.
        if dist.get_world_size() > 1:
            raise RuntimeError(failed) from error
        raise LearnerFault(f"{failed}: {_cause(error)}") from error
    together.on_first(lambda: _finish(engine, beside, folder), failed)


def load(engine: Engine, folder: Path) -> None:
    """Go on from a checkpoint; a collective call.

    Raises LearnerFault, with the engine unchanged, where the checkpoint is missing, damaged or of another model.
    """
    from megatron.core import dist_checkpointing

    box: list[Any] = [None]

    def look() -> None:
        box[0] = examine(engine, folder)

    together.on_first(look, f"checkpoint {folder} cannot be read")
    dist.broadcast_object_list(box, src=0)
    engine.reference_weights = _room(engine) if box[0]["reference"] else {}
    state = dist_checkpointing.load(sharded(engine, loading=True), str(folder))
    engine.policy.load_state_dict(state["model"])
    _with_step(state["optimizer"])
    with torch.no_grad():
        engine.optimizer.load_state_dict(state["optimizer"])
    for part in engine.optimizer.chained_optimizers:
        optimizers.prime(part.optimizer)
    for name, held in (state.get("reference") or {}).items():
        engine.reference_weights[name].copy_(held)
    torch.set_rng_state(state["rng"])
    engine.version = state["version"]


def _with_step(state: Any) -> None:
    """Megatron-core writes no step count of 0, and torch's Adam asks for one: put it where it is missing."""
    if not isinstance(state, dict):
        return
    moments = state.get("state")
    if isinstance(moments, dict) and moments and "common_step" not in moments:
        moments["common_step"] = torch.zeros(())
    for inner in state.values():
        _with_step(inner)


def sharded(engine: Engine, loading: bool) -> dict[str, Any]:
    """What Megatron-core is told of this rank's tensors: names, shapes, and where each is in the whole."""
    from megatron.core import parallel_state

    metadata = {
        "distrib_optim_sharding_type": "fully_reshardable",
        "singleton_local_shards": False,
        "chained_optim_avoid_prefix": True,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    model = engine.policy.sharded_state_dict(metadata=metadata)
    state = {
        "model": model,
        "optimizer": engine.optimizer.sharded_state_dict(model, is_loading=loading, metadata=metadata),
    }
    if engine.reference_weights:
        state["reference"] = _reference(engine, metadata)
    return state


def _reference(engine: Engine, metadata: dict[str, Any]) -> dict[str, Any]:
    """The reference policy's tensors by global name, placed as the model's own are."""
    from megatron.core.dist_checkpointing.utils import add_prefix_for_sharding

    own = {id(held): name for name, held in engine.parameters().items()}
    shards = engine.policy.sharded_state_dict(metadata=metadata).values()
    found = {own[id(shard.data)]: shard for shard in shards if id(getattr(shard, "data", None)) in own}
    for name, shard in found.items():
        shard.data = engine.reference_weights[name]
    add_prefix_for_sharding(found, REFERENCE)
    return found


def _without_manager() -> None:
    """Megatron-core's writer hands its results on by a queue of a manager process, which would outlive a killed rank.

    A rank writes synchronously, in its own process, so that a plain queue does.
    """
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    filesystem_async._results_queue = queue.Queue()


def _cause(error: BaseException) -> str:
    failures = getattr(error, "failures", {}) or {}
    return "; ".join(str(failure[0]) for failure in failures.values()) or str(error)


def _prepare(engine: Engine, folder: Path, beside: Path) -> None:
    if folder.exists():
        raise LearnerFault(f"checkpoint {folder} exists already: give a new folder, or remove it")
    shutil.rmtree(beside, ignore_errors=True)  # what an earlier process left half written
    beside.mkdir(parents=True)
    needed, free = _estimate(engine), shutil.disk_usage(beside).free
    if needed > free:
        beside.rmdir()
        raise LearnerFault(f"checkpoint {folder} needs about {needed} bytes and the disk has {free}: free some")


def _estimate(engine: Engine) -> int:
    """Bytes of a checkpoint: weights, two moments in float32, their float32 copy under bf16, the reference."""
    width = 2 if engine.config.precision == "bf16" else 4
    each = 12 + (width if width < 4 else 0) + (width if engine.reference_weights else 0)
    return sum(math.prod(size) for size in sizes(engine.config.model).values()) * each


def _finish(engine: Engine, beside: Path, folder: Path) -> None:
    manifest = {
        "format": FORMAT,
        "version": engine.version,
        "reference": bool(engine.reference_weights),
        "model": _described(engine),
        "shape": dataclasses.asdict(engine.config.model),
        "precision": engine.config.precision,
        "distributed_optimizer": engine.config.parallel.distributed_optimizer,
        "files": {path.relative_to(beside).as_posix(): _measure(path) for path in _files(beside)},
    }
    with (beside / MANIFEST).open("w", encoding="utf-8") as out:
        json.dump(manifest, out, indent=1, sort_keys=True)
    for path in (*_files(beside), beside):
        _sync(path)
    beside.rename(folder)
    _sync(folder.parent)


def _described(engine: Engine) -> str:
    """The model and what its numbers are: a checkpoint goes with these only."""
    kind = "distributed" if engine.config.parallel.distributed_optimizer else "plain"
    return f"{engine.config.model} in {engine.config.precision} with a {kind} optimizer"


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)


def _measure(path: Path) -> dict[str, Any]:
    found = hashlib.sha256()
    with path.open("rb") as source:
        while part := source.read(1 << 20):
            found.update(part)
    return {"bytes": path.stat().st_size, "sha256": found.hexdigest()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def examine(engine: Engine, folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose every file is whole. Raises LearnerFault with the remedy."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files, described = manifest["files"], manifest["model"]
        found = {name: _measure(folder / name) for name in files}
    except FileNotFoundError as error:
        missing = error.filename
        raise LearnerFault(f"checkpoint {folder} is not whole ({missing} is missing): load an earlier one") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LearnerFault(f"checkpoint {folder} has a damaged {MANIFEST}: load an earlier one") from error
    if manifest.get("format") != FORMAT:
        raise LearnerFault(f"checkpoint {folder} is of format {manifest.get('format')}: this version reads {FORMAT}")
    for name, measured in files.items():
        if found[name] != measured:
            raise LearnerFault(f"checkpoint {folder} is damaged in {name}: load an earlier one")
    if described != _described(engine):
        raise LearnerFault(f"checkpoint {folder} is of another model: it holds {described}, not {_described(engine)}")
    return dict(manifest)


def _room(engine: Engine) -> dict[str, Any]:
    return {name: torch.empty_like(held) for name, held in engine.parameters().items()}
