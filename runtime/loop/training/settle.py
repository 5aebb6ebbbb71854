"""From a composed configuration to a TrainConfig; everything wrong with it is said before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.schema import Plan
from guerdon.runtime.agent.table import RENDERERS
from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.credit.algorithms import ALGORITHMS
from guerdon.runtime.learner import fit
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, OptimizerConfig, Parallel
from guerdon.runtime.loop.config import RunError
from guerdon.runtime.loop.near import hint
from guerdon.runtime.loop.settings import Weights, changed_weights
from guerdon.runtime.loop.training.config import (
    AlgorithmConfig,
    CheckpointConfig,
    EvaluateConfig,
    RolloutConfig,
    StageConfig,
    TrainConfig,
)
from guerdon.runtime.policy.table import POLICIES
from guerdon.runtime.report.trackers import TRACKERS

Document = Mapping[str, Any]
T = TypeVar("T")
SEEDS = 1 << 62
"""Generators take 63 bits, and ranks add to them."""


@dataclass(frozen=True, slots=True)
class SettledTraining:
    """One training run, settled: how, below which folder, and the weights that were changed."""

    cfg: TrainConfig
    runs: Path
    weights: Weights


def settle_train(document: Document, plan: Plan) -> SettledTraining:
    """Read a composed configuration (plain mappings). Raises RunError naming the key."""
    algorithm, learner, rollout = document["algorithm"], document["learner"], document["rollout"]
    _counts("algorithm", algorithm, {"steps": 0, "prompts": 1, "group": 1, "warmup_steps": 0, "updates": 1,
                                     "max_turn_tokens": 1})
    _numbers("algorithm", algorithm, ("lr", "clip_low", "clip_high", "kl", "entropy", "temperature", "lr_floor"))
    _counts("rollout", rollout, {"width": 0, "retries": 0, "give_up_after": 1})
    _counts("evaluate", document["evaluate"], {"every": 0, "rows": 0, "samples": 1})
    _counts("checkpoint", document["checkpoint"], {"every": 1, "keep": 1})
    _one_of("algorithm.name", algorithm["name"], ALGORITHMS)
    _one_of("algorithm.zero_variance", algorithm["zero_variance"], ("skip", "keep"))
    _one_of("learner.renderer", learner["renderer"], RENDERERS)
    for name in document["tracker"]:
        _one_of("tracker", name, TRACKERS)
    if rollout["mode"] != "lockstep":
        raise RunError(f"rollout.mode is {rollout['mode']!r}; this version rolls out in lockstep only")
    if not 0 <= document["seed"] < SEEDS:
        raise RunError(f"seed is {document['seed']}; it must be 0 or more, and below 2^62")
    if not 0 < algorithm["top_p"] <= 1:
        raise RunError(f"algorithm.top_p is {algorithm['top_p']}; it must lie above 0 and not above 1")
    cfg = TrainConfig(
        seed=document["seed"], tasks=tuple(document["tasks"]),
        split=_split(plan, document["split"]), eval_split=_split(plan, document["eval_split"]),
        renderer=learner["renderer"], tracker=tuple(document["tracker"]),
        algorithm=_taken(AlgorithmConfig, algorithm), learner=_learner(learner, document["seed"]),
        rollout=_taken(RolloutConfig, rollout), warm_start=tuple(_stages(document["warm_start"]["stages"])),
        evaluate=_taken(EvaluateConfig, document["evaluate"]),
        checkpoint=_taken(CheckpointConfig, document["checkpoint"]),
    )
    return SettledTraining(cfg, Path(document["store"]["runs"]), changed_weights(document["reward"], plan))


def folder_name(pack: str, plan: str, cfg: TrainConfig) -> str:
    """The run folder's name: the same command on the same plan names the same folder. What changes no number (trackers,
    retries, threads) has no part in it."""
    deciding = {
        f.name: repr(getattr(cfg, f.name)) for f in fields(cfg) if f.name not in ("tracker", "rollout", "checkpoint")
    }
    deciding["learner"] = repr(replace(cfg.learner, threads=0))
    deciding["width"] = str(cfg.rollout.width)
    config = digest(dumps(deciding))
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in pack)
    head = f"{safe}-train-{cfg.algorithm.name}-seed{cfg.seed}"
    return f"{head}-{plan.removeprefix('sha256:')[:10]}-{config.removeprefix('sha256:')[:10]}"


def _learner(given: Document, seed: int) -> LearnerConfig:
    least = dict.fromkeys(("layers", "hidden", "ffn", "heads", "kv_heads", "ranks", "tensor", "pipeline",
                           "context_parallel", "micro_tokens"), 1)
    _counts("learner", given, {**least, "head_dim": 2, "context": 8, "threads": 0})
    _numbers("learner", given, ("rope_base", "beta1", "beta2", "weight_decay", "clip_grad"))
    for key in ("beta1", "beta2"):
        if given[key] >= 1:
            raise RunError(f"learner.{key} is {given[key]}; it must be below 1")
    shape = ModelShape(
        layers=given["layers"], hidden=given["hidden"], ffn=given["ffn"], heads=given["heads"],
        kv_heads=given["kv_heads"], head_dim=given["head_dim"], context=given["context"], rope_base=given["rope_base"],
    )
    parallel = Parallel(given["ranks"], given["tensor"], given["pipeline"], given["context_parallel"],
                        given["sequence"], given["distributed_optimizer"])
    optimizer = OptimizerConfig(given["beta1"], given["beta2"], weight_decay=given["weight_decay"],
                                clip_grad=given["clip_grad"])
    made = LearnerConfig(shape, parallel, optimizer, seed, given["precision"], given["micro_tokens"],
                         given["recompute"], given["threads"], given["weights"])
    try:
        fit.check(made)
    except LearnerFault as wrong:
        raise RunError(f"{wrong}") from wrong
    if given["weights"] and not Path(given["weights"]).exists():
        raise RunError(f"learner.weights is {given['weights']!r}, which is not there; name a folder or a GGUF file")
    return made


def _stages(given: list[Document]) -> list[StageConfig]:
    made = []
    for index, stage in enumerate(given):
        where = f"warm_start.stages[{index}]"
        _counts(where, stage, {"episodes": 2, "steps": 1, "batch": 1})
        _numbers(where, stage, ("lr", "until"))
        if not stage["sources"] or min(stage["sources"].values()) < 0 or not sum(stage["sources"].values()):
            raise RunError(f"{where}.sources must name policies with their shares, such as {{oracle: 1.0}}")
        for name in stage["sources"]:
            _one_of(f"{where}.sources", name, [n for n in POLICIES if n not in ("scripted", "openai")])
        made.append(_taken(StageConfig, stage))
    return made


def _split(plan: Plan, name: str) -> str:
    """The split, where the pack has any; a pack without splits is learnt whole."""
    splits = {split for task in plan.tasks.values() for split in task.splits}
    return name if splits else ""


def _taken(kind: type[T], given: Document) -> T:
    """A frozen dataclass of the keys that it has."""
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in given.items() if key in names})


def _counts(section: str, given: Document, least: Mapping[str, int]) -> None:
    for key, low in least.items():
        if given[key] < low:
            raise RunError(f"{section}.{key} is {given[key]}; it must be {low} or more")


def _numbers(section: str, given: Document, keys: tuple[str, ...]) -> None:
    for key in keys:
        if not (math.isfinite(given[key]) and given[key] >= 0):
            raise RunError(f"{section}.{key} is {given[key]}; it must be a number of 0 or more")


def _one_of(key: str, name: str, known: Any) -> None:
    if name not in known:
        raise RunError(f"{key} is {name!r}; {hint(name, known)}")
