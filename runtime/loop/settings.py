"""From a composed configuration to what `run` takes; everything wrong with it is said before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from guerdon.compiler.plan.canonical import rational
from guerdon.compiler.plan.schema import Plan, RewardPlan
from guerdon.runtime.loop.config import RunConfig, RunError, folder_name

_COUNTS = {"samples": 1, "first": 0}
_SANDBOX_COUNTS = {"concurrency": 0, "retries": 0, "give_up_after": 1}


@dataclass(frozen=True, slots=True)
class Settled:
    """One run, settled: who acts with which settings, how, and into which folder."""

    policy: str
    settings: Mapping[str, Any]
    cfg: RunConfig
    out: Path


def settle(document: Mapping[str, Any], plan: Plan, digest: str) -> Settled:
    """Read a composed configuration (plain mappings). Raises RunError naming the key."""
    for section, least in ((document, _COUNTS), (document["sandbox"], _SANDBOX_COUNTS)):
        for key, low in least.items():
            if section[key] < low:
                raise RunError(f"{key} is {section[key]}; it must be {low} or more")
    sandbox, policy = document["sandbox"], document["policy"]
    cfg = RunConfig(
        samples=document["samples"], seed=document["seed"], tasks=tuple(document["tasks"]),
        rows=tuple(document["rows"]), split=document["split"], first=document["first"],
        weights=_weights(document["reward"], plan), concurrency=sandbox["concurrency"],
        retries=sandbox["retries"], give_up_after=sandbox["give_up_after"],
    )
    settings = {key: value for key, value in policy.items() if key != "name"}
    name = folder_name(plan.pack, policy["name"], digest, cfg, settings)
    return Settled(policy["name"], settings, cfg, Path(document["store"]["runs"]) / name)


def reward_defaults(plan: Plan) -> dict[str, Any]:
    """The `reward` part of the configuration: each weight as the plan has it."""
    rewards = _rewards(plan)
    made = {
        name: {weight: float(Fraction(value)) for weight, (value, _, _) in reward.weights.items()}
        for name, reward in rewards.items()
    }
    return next(iter(made.values())) if len(made) == 1 else made


def _weights(given: Mapping[str, Any], plan: Plan) -> dict[str, dict[str, str]]:
    """The weights that differ from the plan's, as rationals; names and ranges are checked by `run.check`."""
    rewards = _rewards(plan)
    per = {next(iter(rewards)): given} if len(rewards) == 1 else given
    changed: dict[str, dict[str, str]] = {}
    for name, weights in per.items():
        if not isinstance(weights, Mapping):
            raise RunError(f"reward.{name} must be a weight of one reward: write reward.<reward>.{name}=…")
        reward = rewards.get(name)
        for weight, value in weights.items():
            exact = _exact(f"reward.{weight}", value)
            known = reward.weights.get(weight) if reward else None
            # A default such as 1/3 went through a float on its way here; unchanged means unchanged.
            if known is None or float(Fraction(known[0])) != float(exact):
                changed.setdefault(name, {})[weight] = rational(exact)
    return changed


def _exact(key: str, value: Any) -> Fraction:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            # The shortest decimal of a float is what was typed: 0.05 is 1/20 and not its binary neighbour.
            return Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            pass
    raise RunError(f"{key} is {value!r}; it must be a number such as 0.05 or 1/20")


def _rewards(plan: Plan) -> dict[str, RewardPlan]:
    return {task.reward.name: task.reward for task in plan.tasks.values()}
