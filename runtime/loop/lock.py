"""The engine of `guerdon lock`: what only running can tell, found by the oracle and by doing nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from guerdon.compiler.plan.schema import InstancePlan, VerifierPlan
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.contracts.sandbox import SandboxProvider
from guerdon.runtime.contracts.store import AssetReader
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Outcome, Sealed, Verdict
from guerdon.runtime.loop.config import RunConfig
from guerdon.runtime.loop.episode import Job, run_episode
from guerdon.runtime.loop.workshop import Workshop
from guerdon.runtime.policy.table import make
from guerdon.runtime.schedule.executor import default_admission, run_jobs
from guerdon.runtime.schedule.stop import Stop, unless_stopped

Locked = dict[str, dict[str, dict[str, dict[str, list[str]]]]]
"""task -> row -> verifier -> `expect`, `failing_at_start` -> test ids."""

PASSED = "passed"


@dataclass(slots=True)
class Learnt:
    """What was learnt: image ids by name, test ids by row, and in words what could not be."""

    images: dict[str, str] = field(default_factory=dict)
    tests: Locked = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data: `images`, `tests`, `problems`."""
        return {"images": self.images, "tests": self.tests, "problems": self.problems}


async def learn(
    plan: LoadedPlan, provider: SandboxProvider, assets: AssetReader | None = None,
    *, concurrency: int = 0, stop: Stop | None = None,
) -> dict[str, Any]:
    """Make every image, and run oracle and idle on each row that has a pytest verifier with `expect = locked`.

    Gives `{"images": {name: id}, "tests": {task: {row: {verifier: {"expect": […], "failing_at_start": […]}}}},
    "problems": […]}`; a row with a problem has no tests. Raises SandboxFault, HostFault, AssetFault, Interrupted.
    """
    if assets is not None:
        plan = LoadedPlan(plan.plan, plan.digest, assets, plan.instances, plan.document)
    learnt = Learnt()
    cfg = RunConfig()
    shops = {name: Workshop(plan, make(name), cfg, provider) for name in ("oracle", "idle")}
    for name in plan.plan.images:
        learnt.images[name] = await unless_stopped(shops["oracle"].image(name), stop)
    verdicts: dict[tuple[str, str, str], Sealed] = {}

    async def work(job: Job) -> None:
        sealed = await run_episode(shops[job.spec.policy], job)
        verdicts[job.spec.task, job.spec.row, job.spec.policy] = sealed

    rows = [instance for instance in plan.instances() if _locked(instance)]
    await run_jobs(_jobs(plan, rows), work, concurrency or default_admission(), stop)
    for instance in rows:
        _learn_row(learnt, instance, verdicts)
    learnt.problems += [text for shop in shops.values() for text in shop.notes]
    return learnt.to_json()


def _locked(instance: InstancePlan) -> tuple[VerifierPlan, ...]:
    return tuple(v for v in instance.verify if v.kind == "pytest" and v.settings.get("expect") == "locked")


def _unbound(instance: InstancePlan) -> InstancePlan:
    """The row with every collected test counting, since which ones shall is what is to be found out."""
    locked = {v.name for v in _locked(instance)}
    verify = tuple(
        replace(v, settings={**v.settings, "expect": None, "failing_at_start": None}) if v.name in locked else v
        for v in instance.verify
    )
    return replace(instance, verify=verify)


def _jobs(plan: LoadedPlan, rows: list[InstancePlan]) -> Iterator[Job]:
    for instance in rows:
        for policy in ("oracle", "idle") if instance.solution else ():
            yield Job(EpisodeSpec(plan.digest, instance.task, instance.row, 0, 0, policy), _unbound(instance))


def _learn_row(learnt: Learnt, instance: InstancePlan, verdicts: dict[tuple[str, str, str], Sealed]) -> None:
    name = f"{instance.task}/{instance.row}"
    if not instance.solution:
        learnt.problems.append(f"{name} has no solution, so no run shows which tests must pass; write `solution`")
        return
    found: dict[str, dict[str, list[str]]] = {}
    for plan in _locked(instance):
        tests, problems = [], []
        for policy in ("oracle", "idle"):
            outcomes, problem = _tests(verdicts[instance.task, instance.row, policy], plan.name)
            tests.append(outcomes)
            problems += [f"{name}: {policy}: {problem}"] if problem else []
        oracle, idle = tests
        expect = sorted(test for test, outcome in oracle.items() if outcome == PASSED)
        problems += _doubts(name, plan.name, oracle, expect) if not problems else []
        if problems:
            learnt.problems += problems
            continue
        failing = [test for test in expect if idle.get(test) != PASSED]
        if not failing:
            learnt.problems.append(
                f"{name}: every test of the verifier {plan.name} passes before anything is done; "
                "its tests do not see the task"
            )
        found[plan.name] = {"expect": expect, "failing_at_start": failing}
    if found:
        learnt.tests.setdefault(instance.task, {})[instance.row] = found


def _tests(sealed: Sealed, verifier: str) -> tuple[dict[str, str], str]:
    """The outcome of each test, and what is wrong where there are none."""
    verdict: Verdict | None = sealed.verdicts.get(verifier)
    if verdict is None or verdict.outcome is Outcome.INVALID:
        return {}, (verdict.reason if verdict else sealed.reason) or "the episode is invalid"
    tests = verdict.details.get("tests")
    if not isinstance(tests, dict):
        return {}, f"the verifier {verifier} told no test ids ({verdict.reason or 'no reason given'})"
    return {str(test): str(outcome) for test, outcome in tests.items()}, ""


def _doubts(row: str, verifier: str, oracle: dict[str, str], expect: list[str]) -> list[str]:
    if not expect:
        return [f"{row}: no test of the verifier {verifier} passes with the solution; mend solution or tests"]
    lost = sorted(test for test, outcome in oracle.items() if outcome in ("failed", "error"))
    if lost:
        shown = ", ".join(lost[:3]) + (" …" if len(lost) > 3 else "")
        return [f"{row}: with the solution, {len(lost)} test(s) of {verifier} fail ({shown}); mend solution or tests"]
    return []


