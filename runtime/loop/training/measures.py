"""What a batch of episodes came to, as the numbers of metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from guerdon.runtime.contracts.trajectory import Outcome, Sealed


def measures(episodes: Sequence[Sealed]) -> dict[str, float]:
    """Solve rate, mean reward and each term of it over the valid episodes; the share of invalid ones; mean counters.

    Invalid episodes are no failures: they are in no mean.
    """
    valid = [one for one in episodes if one.outcome is not Outcome.INVALID and one.reward is not None]
    found = {
        "episodes": float(len(episodes)),
        "invalid_share": (len(episodes) - len(valid)) / len(episodes) if episodes else 0.0,
    }
    if not valid:
        return found
    found["solve_rate"] = sum(one.outcome is Outcome.PASS for one in valid) / len(valid)
    found["reward_mean"] = _mean(one.reward.value for one in valid if one.reward)
    for term in sorted({name for one in valid if one.reward for name in one.reward.terms}):
        found[f"reward/{term}"] = _mean(
            float(Fraction(one.reward.terms.get(term, "0"))) for one in valid if one.reward
        )
    for name in ("turns", "tool_calls", "malformed_calls", "tokens"):
        found[f"episode/{name}"] = _mean(float(getattr(one.trajectory.counters, name)) for one in valid)
    found["episode/truncated"] = _mean(float(one.trajectory.counters.truncated) for one in valid)
    return found


def seconds(episodes: Iterable[Sealed]) -> dict[str, float]:
    """Seconds by stage, summed over episodes that ran side by side."""
    total: dict[str, float] = {}
    for one in episodes:
        for stage, spent in one.seconds.items():
            if stage != "all":
                total[stage] = total.get(stage, 0.0) + spent
    return {f"episode_seconds/{stage}": spent for stage, spent in sorted(total.items())}


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Only the numbers that JSON can hold."""
    return {key: value for key, value in values.items() if math.isfinite(value)}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
