"""Calibration: the solution must pass, and everything that does not solve the task must fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.sandbox import SandboxProvider
from guerdon.runtime.contracts.trajectory import Outcome, Sealed
from guerdon.runtime.loop.config import RunConfig, folder_name
from guerdon.runtime.loop.run import Watcher, run
from guerdon.runtime.policy.table import ATTACKS, make
from guerdon.runtime.schedule.stop import Stop
from guerdon.runtime.store.durable import write_atomically, writing
from guerdon.runtime.store.journal import FileJournal

POLICIES = ("oracle", "idle", "refusal", "quit", "exploit", *ATTACKS)
REPORT = "calibration.json"
EVIDENCE = 300
"""Characters of evidence shown with a missed bar."""


@dataclass(frozen=True, slots=True)
class Missed:
    """One episode that missed its bar."""

    task: str
    row: str
    policy: str
    outcome: Outcome
    wanted: Outcome
    reason: str

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.task}/{self.row}: {self.policy} is {self.outcome.value}, must be {self.wanted.value}{why}"


@dataclass(slots=True)
class Calibration:
    """What calibrating came to. `outcomes` counts by (task, policy) and outcome; `gaps` says what was not tried."""

    plan: str
    outcomes: dict[tuple[str, str], dict[Outcome, int]] = field(default_factory=dict)
    missed: list[Missed] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """Exit status: 1 when a bar was missed, or when nothing showed that the tasks can be solved."""
        return 1 if self.missed or not any(policy == "oracle" for _, policy in self.outcomes) else 0

    def to_json(self) -> dict[str, Any]:
        """As it stands in calibration.json."""
        return {
            "plan": self.plan,
            "ok": self.status == 0,
            "policies": [
                {"task": task, "policy": policy, **{o.value: counts.get(o, 0) for o in Outcome}}
                for (task, policy), counts in self.outcomes.items()
            ],
            "missed": [
                {
                    "task": m.task, "row": m.row, "policy": m.policy, "outcome": m.outcome.value,
                    "wanted": m.wanted.value, "reason": m.reason,
                }
                for m in self.missed
            ],
            "gaps": list(self.gaps),
        }


async def calibrate(
    plan: LoadedPlan, provider: SandboxProvider | None, runs: Path, cfg: RunConfig | None = None,
    *, watcher: Watcher | None = None, stop: Stop | None = None,
) -> Calibration:
    """Run every calibrating policy over the selected rows, each into its run folder below `runs`.

    The bars: the oracle passes, every other policy fails, none is invalid. Gone on with like any run. Writes
    calibration.json. Raises what `run` does.
    """
    cfg = cfg or RunConfig()
    result = Calibration(plan.digest)
    for name in POLICIES:
        out = runs / folder_name(plan.plan.pack, name, plan.digest, cfg, {})
        summary = await run(plan, make(name), cfg, out, provider, watcher=watcher, stop=stop)
        with FileJournal(out) as journal:
            for sealed in journal.latest():
                _judge(result, sealed)
        if not summary.counts:
            result.gaps += summary.notes
    if not any(policy == "oracle" for _, policy in result.outcomes):
        result.gaps.append("no row has a solution: nothing shows that the tasks can be solved; write `solution`")
    text = json.dumps(result.to_json(), indent=2, ensure_ascii=False)
    with writing(runs):
        runs.mkdir(parents=True, exist_ok=True)
        write_atomically(runs / f"{plan.plan.pack.replace('/', '_')}-{REPORT}", [text.encode(errors="replace") + b"\n"])
    return result


def wanted(policy: str) -> Outcome:
    """The outcome that a policy must have."""
    return Outcome.PASS if policy == "oracle" else Outcome.FAIL


def _judge(result: Calibration, sealed: Sealed) -> None:
    spec = sealed.trajectory.episode
    counts = result.outcomes.setdefault((spec.task, spec.policy), {})
    counts[sealed.outcome] = counts.get(sealed.outcome, 0) + 1
    if sealed.outcome is not wanted(spec.policy):
        reason = _why(sealed) if sealed.outcome is not Outcome.PASS else _paid(sealed)
        result.missed.append(
            Missed(spec.task, spec.row, spec.policy, sealed.outcome, wanted(spec.policy), reason)
        )


def _why(sealed: Sealed) -> str:
    """The reason, and the first line of evidence behind it."""
    missed = (v for v in sealed.verdicts.values() if v.outcome is not Outcome.PASS)
    first = next((line.strip() for v in missed for line in v.evidence.splitlines() if line.strip()), "")
    return f"{sealed.reason}: {first[:EVIDENCE]}" if first else sealed.reason


def _paid(sealed: Sealed) -> str:
    return f"it earned {sealed.reward.total} without doing the task" if sealed.reward else ""


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report as plain lines of a table: task, policy, pass, fail, invalid, and whether that is right."""
    bad = {(m["task"], m["policy"]) for m in report["missed"]}
    rows = [["task", "policy", "pass", "fail", "invalid", ""]]
    for row in report["policies"]:
        verdict = "MISSED" if (row["task"], row["policy"]) in bad else "ok"
        counts = [str(row[o.value]) for o in Outcome]
        rows.append([row["task"], row["policy"], *counts, verdict])
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
