"""Kind `pytest`: hidden tests run by a trusted parent, candidate code in a child of another uid."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from guerdon.compiler.plan.canonical import Json
from guerdon.compiler.plan.expr import Value
from guerdon.compiler.plan.schema import VerifierPlan
from guerdon.runtime.contracts.sandbox import Sandbox
from guerdon.runtime.contracts.trajectory import Outcome, Verdict
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify import harness
from guerdon.runtime.verify.evidence import clean
from guerdon.runtime.verify.placement import GRADER
from guerdon.runtime.verify.settle import failed, invalid, settle


class Pytest:
    """Settings: `expect` (ids, `"locked"` or null), `failing_at_start`, `roots`, `call_wall` (ms).

    Signals: `passed`, `fraction` and `gain` in 0..1, `failed` (at least 1 unless passed).
    """

    async def run(self, given: VerifyInput) -> Verdict:
        """Verify one episode. Raises SandboxFault."""
        if given.plan.settings.get("expect") == "locked" or given.plan.settings.get("failing_at_start") == "locked":
            return invalid(f"verifier {given.plan.name}: its test ids are not known yet; run `guerdon lock`")
        if not given.hidden:
            return invalid(f"verifier {given.plan.name}: it has no hidden tests; add files below /grader/tests")
        lost = _signals(given.plan, {})
        if given.artefacts.problem is not None:
            return failed(lost, f"the artefacts cannot be verified: {given.artefacts.problem}")
        return await settle(given, _attempt, lost)


async def _attempt(given: VerifyInput) -> Verdict:
    wall = given.plan.wall_ms / 1000
    async with harness.filled(given, harness.programs()) as sandbox:
        report = await harness.ask_parent(sandbox, _job(given, sandbox, wall), wall)
    tests = {str(k): str(v) for k, v in dict(report["tests"]).items()}
    return _verdict(given.plan, tests, {str(k): str(v) for k, v in dict(report["reasons"]).items()})


def _job(given: VerifyInput, sandbox: Sandbox, wall: float) -> dict[str, Any]:
    settings = given.plan.settings
    # The candidate gets half of the sandbox's processes: the parent must always be able to start one more.
    return {
        "tests": hidden_folder([f.path for f in given.hidden]), "roots": settings.get("roots") or None,
        "workdir": given.workdir, "uid": 1000, "gid": 1000, "processes": max(8, sandbox.spec.resources.pids // 2),
        "memory": 0, "call_wall": int(str(settings.get("call_wall") or 10_000)) / 1000, "wall": wall,
    }  # fmt: skip


def hidden_folder(paths: Sequence[str]) -> str:
    """The folder that test ids are relative to: `/grader/tests`, or the one that holds all hidden files."""
    usual = GRADER + "/tests"
    if any(p.startswith(usual + "/") for p in paths):
        return usual
    return posixpath.commonpath([posixpath.dirname(p) for p in paths])


def _verdict(plan: VerifierPlan, tests: Mapping[str, str], reasons: Mapping[str, str]) -> Verdict:
    signals = _signals(plan, tests)
    details: dict[str, Json] = {"tests": dict(sorted(tests.items()))}
    if signals["passed"] is True:
        return Verdict(Outcome.PASS, signals, evidence=f"{len(tests)} tests passed", details=details)
    lines = [f"{name}: {state}" + (f": {reasons[name]}" if name in reasons else "") for name, state in
             sorted(_universe(plan, tests).items()) if state != "passed"]  # fmt: skip
    lines += [text for name, text in reasons.items() if name not in tests]
    reason = f"{len(lines)} of {len(_universe(plan, tests))} tests did not pass" if lines else "no test was collected"
    evidence = clean("\n".join(line.replace("\n", " ") for line in lines))
    return Verdict(Outcome.FAIL, signals, reason, evidence, details=details)


def _ids(value: Json) -> list[str] | None:
    return [str(v) for v in value] if isinstance(value, list | tuple) else None


def _universe(plan: VerifierPlan, tests: Mapping[str, str]) -> dict[str, str]:
    """What counts: the expected ids (all collected ones where none are declared), and whatever failed beside them."""
    expected = _ids(plan.settings.get("expect"))
    if expected is None:
        return dict(tests)
    beside = {name: state for name, state in tests.items() if state == "failed"}
    return {**beside, **{name: tests.get(name, "missing") for name in expected}}


def _signals(plan: VerifierPlan, tests: Mapping[str, str]) -> dict[str, Value]:
    universe = _universe(plan, tests)
    good = sum(state == "passed" for state in universe.values())
    passed = bool(universe) and good == len(universe)
    fraction = Fraction(good, len(universe)) if universe else Fraction(0)
    start = _ids(plan.settings.get("failing_at_start"))
    gain = fraction
    if start is not None:
        mended = sum(tests.get(name) == "passed" for name in set(start))
        gain = Fraction(mended, len(set(start))) if start else Fraction(int(passed))
    return {
        "passed": passed, "fraction": fraction, "gain": gain,
        "failed": Fraction(0) if passed else Fraction(max(1, len(universe) - good)),
    }  # fmt: skip
