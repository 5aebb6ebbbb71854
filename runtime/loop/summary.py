"""What a run came to, as numbers: counted from the last entry of each episode in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from guerdon.runtime.contracts.trajectory import Outcome, Sealed


@dataclass(slots=True)
class Count:
    """Episodes of one task and policy. `reward` is the exact sum over the valid ones."""

    passed: int = 0
    failed: int = 0
    invalid: int = 0
    reward: Fraction = Fraction(0)

    def add(self, sealed: Sealed) -> None:
        """Count one episode."""
        self.passed += sealed.outcome is Outcome.PASS
        self.failed += sealed.outcome is Outcome.FAIL
        self.invalid += sealed.outcome is Outcome.INVALID
        if sealed.reward is not None:
            self.reward += Fraction(sealed.reward.total)

    @property
    def mean(self) -> float | None:
        """Mean reward of the valid episodes; None where there is none."""
        valid = self.passed + self.failed
        return float(self.reward / valid) if valid else None

    def to_json(self) -> dict[str, Any]:
        """As it stands in summary.json."""
        return {"pass": self.passed, "fail": self.failed, "invalid": self.invalid, "mean_reward": self.mean}


@dataclass(slots=True)
class Summary:
    """One run: counts by (task, policy), how long this process worked on it, what people should know.

    `ran` are the episodes that this process ran, `complete` is False after a stop; `reasons` counts why
    episodes were invalid.
    """

    plan: str
    policy: str
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    ran: int = 0
    seconds: float = 0.0
    complete: bool = False
    notes: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def tally(self, episodes: Iterable[Sealed]) -> None:
        """Count all episodes anew."""
        self.counts.clear()
        self.reasons.clear()
        for sealed in episodes:
            spec = sealed.trajectory.episode
            self.counts.setdefault((spec.task, spec.policy), Count()).add(sealed)
            if sealed.outcome is Outcome.INVALID:
                self.reasons[sealed.reason] = self.reasons.get(sealed.reason, 0) + 1

    @property
    def total(self) -> Count:
        """All of it together."""
        whole = Count()
        for count in self.counts.values():
            whole.passed += count.passed
            whole.failed += count.failed
            whole.invalid += count.invalid
            whole.reward += count.reward
        return whole

    def to_json(self) -> dict[str, Any]:
        """As it stands in summary.json."""
        return {
            "plan": self.plan,
            "policy": self.policy,
            "complete": self.complete,
            "total": self.total.to_json(),
            "tasks": [
                {"task": task, "policy": policy, **count.to_json()}
                for (task, policy), count in sorted(self.counts.items())
            ],
            "invalid_reasons": dict(sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))),
            "ran": self.ran,
            "seconds": round(self.seconds, 3),
            "episodes_per_second": round(self.ran / self.seconds, 3) if self.seconds and self.ran else None,
            "config": dict(self.config),
            "notes": list(self.notes),
        }
