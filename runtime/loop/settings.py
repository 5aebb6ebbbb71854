"""From a composed configuration to what `run` takes; everything wrong with it is said before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from guerdon.compiler.plan.schema import Plan, RewardPlan
from guerdon.runtime.loop.config import RunConfig, RunError

Weights = Mapping[str, Mapping[str, Fraction]]
"""reward -> weight -> value."""

_COUNTS = {"samples": 1, "first": 0}
_SANDBOX_COUNTS = {"concurrency": 0, "retries": 0, "give_up_after": 1}


@dataclass(frozen=True, slots=True)
class Settled:
    """One run, settled: who acts with which settings, how, below which folder, and the weights that were changed."""

    policy: str
    settings: Mapping[str, Any]
    cfg: RunConfig
    runs: Path
    weights: Weights


def settle(document: Mapping[str, Any], plan: Plan) -> Settled:
    """Read a composed configuration (plain mappings). Raises RunError naming the key."""
    for section, least in ((document, _COUNTS), (document["sandbox"], _SANDBOX_COUNTS)):
        for key, low in least.items():
            if section[key] < low:
                raise RunError(f"{key} is {section[key]}; it must be {low} or more")
    sandbox, policy = document["sandbox"], document["policy"]
    cfg = RunConfig(
        samples=document["samples"], seed=document["seed"], tasks=tuple(document["tasks"]),
        rows=tuple(document["rows"]), split=document["split"], first=document["first"],
        concurrency=sandbox["concurrency"], retries=sandbox["retries"], give_up_after=sandbox["give_up_after"],
    )
    settings = {key: value for key, value in policy.items() if key != "name"}
    runs = Path(document["store"]["runs"])
    return Settled(policy["name"], settings, cfg, runs, changed_weights(document["reward"], plan))


def reward_defaults(plan: Plan) -> dict[str, Any]:
    """The `reward` part of the configuration: each weight as the plan has it."""
    rewards = _rewards(plan)
    made = {
        name: {weight: float(Fraction(value)) for weight, (value, _, _) in reward.weights.items()}
        for name, reward in rewards.items()
    }
    return next(iter(made.values())) if len(made) == 1 else made


def changed_weights(given: Mapping[str, Any], plan: Plan) -> Weights:
    """The weights that differ from the plan's, exactly."""
    rewards = _rewards(plan)
    per = {next(iter(rewards)): given} if len(rewards) == 1 else given
    changed: dict[str, dict[str, Fraction]] = {}
    for name, weights in per.items():
        if name not in rewards or not isinstance(weights, Mapping):
            raise RunError(f"there is no reward {name!r}; the pack has {', '.join(rewards)}")
        for weight, value in weights.items():
            exact = _exact(rewards[name], weight, value)
            # A default such as 1/3 went through a float on its way here; unchanged means unchanged.
            if float(Fraction(rewards[name].weights[weight][0])) != float(exact):
                changed.setdefault(name, {})[weight] = exact
    return changed


def _exact(reward: RewardPlan, weight: str, value: Any) -> Fraction:
    if weight not in reward.weights:
        raise RunError(f"the reward {reward.name} has no weight {weight!r}; it has {', '.join(reward.weights)}")
    _, low, high = reward.weights[weight]
    exact: Fraction | None = None
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            # The shortest decimal of a float is what was typed: 0.05 is 1/20 and not its binary neighbour.
            exact = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            exact = None
    if exact is None:
        raise RunError(f"reward.{weight} is {value!r}; it must be a number such as 0.05 or 1/20")
    if not Fraction(low) <= exact <= Fraction(high):
        raise RunError(f"the weight {weight} of the reward {reward.name} is {value}, outside its range {low} to {high}")
    return exact


def _rewards(plan: Plan) -> dict[str, RewardPlan]:
    return {task.reward.name: task.reward for task in plan.tasks.values()}
