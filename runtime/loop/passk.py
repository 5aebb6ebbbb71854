"""pass@k of a finished run: unbiased, over rows, with its standard error; exact until the last division."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from guerdon.compiler.plan.schema import InstancePlan
from guerdon.runtime.contracts.trajectory import Outcome, Sealed
from guerdon.runtime.store.journal import FileJournal

ALL = "all"


@dataclass(slots=True)
class Tries:
    """The episodes of one row under one identity of the policy."""

    task: str
    split: str
    passed: int = 0
    failed: int = 0
    invalid: int = 0

    @property
    def valid(self) -> int:
        """Episodes that got a verdict."""
        return self.passed + self.failed


def pass_at_k(n: int, c: int, k: int) -> Fraction:
    """The chance that of `k` samples drawn from `n`, of which `c` passed, at least one did: 1 - C(n-c, k) / C(n, k).

    An unbiased estimate of the chance that one of `k` fresh samples passes, for 1 <= k <= n
    (Chen et al., Evaluating Large Language Models Trained on Code, 2021, equation 1).
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} has no estimate from {c} passes of {n} samples")
    return 1 - Fraction(math.comb(n - c, k), math.comb(n, k))


def evaluation(out: Path, instances: Iterable[InstancePlan]) -> dict[str, Any]:
    """What a run folder's episodes come to. Raises StoreFault."""
    splits = {(instance.task, instance.row): instance.split for instance in instances}
    with FileJournal(out) as journal:
        tries = counted(journal.latest(), splits)
    return summary(tries)


def counted(
    episodes: Iterable[Sealed], splits: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str, str], Tries]:
    """Episodes by (policy, task, row), in that order."""
    tries: dict[tuple[str, str, str], Tries] = {}
    for sealed in episodes:
        spec = sealed.trajectory.episode
        key = (spec.policy, spec.task, spec.row)
        if key not in tries:
            tries[key] = Tries(spec.task, splits.get((spec.task, spec.row), ""))
        tries[key].passed += sealed.outcome is Outcome.PASS
        tries[key].failed += sealed.outcome is Outcome.FAIL
        tries[key].invalid += sealed.outcome is Outcome.INVALID
    return dict(sorted(tries.items()))


def summary(tries: Mapping[tuple[str, str, str], Tries]) -> dict[str, Any]:
    """As it stands in eval.json: all rows of a policy, then each split, then each task of each split."""
    groups: dict[tuple[str, str, str], list[Tries]] = {}
    for (policy, _, _), row in tries.items():
        # A split or task of that very name must not be taken for the whole.
        for split, task in dict.fromkeys([("", ""), (row.split or "-", ""), (row.split or "-", row.task)]):
            groups.setdefault((policy, split, task), []).append(row)
    return {
        "groups": [
            {"policy": policy, "split": split or ALL, "task": task or ALL, **_group(rows)}
            for (policy, split, task), rows in sorted(groups.items())
        ]
    }


def _group(rows: Sequence[Tries]) -> dict[str, Any]:
    most = max(row.valid for row in rows)
    return {
        "rows": len(rows),
        "pass": sum(row.passed for row in rows),
        "fail": sum(row.failed for row in rows),
        "invalid": sum(row.invalid for row in rows),
        "pass_at": {str(k): _estimate(rows, k) for k in _wanted(most)},
    }


def _wanted(most: int) -> list[int]:
    """1, 2, 4, … and the largest there is."""
    return sorted({1 << i for i in range(most.bit_length())} | {most}) if most else []


def _estimate(rows: Sequence[Tries], k: int) -> dict[str, Any]:
    """Mean over the rows that have `k` valid episodes, and its standard error (None for a single row)."""
    found = [pass_at_k(row.valid, row.passed, k) for row in rows if row.valid >= k]
    mean = sum(found, Fraction(0)) / len(found)
    error = None
    if len(found) > 1:
        variance = sum(((x - mean) ** 2 for x in found), Fraction(0)) / (len(found) - 1)
        error = math.sqrt(variance / len(found))
    return {"mean": float(mean), "stderr": error, "rows": len(found)}
