"""End to end: hidden tests, artefacts and attacks in real verification sandboxes."""

from __future__ import annotations

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from guerdon.compiler.plan.schema import VerifierPlan
from guerdon.runtime.contracts.sandbox import Artefact, Artefacts, PutFile, Resources, SandboxSpec
from guerdon.runtime.contracts.trajectory import Outcome
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify import verify

pytestmark = pytest.mark.podman

_spec = importlib.util.spec_from_file_location("verify_attacks", Path(__file__).with_name("attacks.py"))
attacks = importlib.util.module_from_spec(_spec)
sys.modules["verify_attacks"] = attacks
_spec.loader.exec_module(attacks)

EXPECT = [f"test_x.py::test_{n}" for n in ("total", "name", "ratio", "check")]


def handed_in(files):
    return Artefacts(tuple(Artefact(f"/workspace/{n}", t.encode(), 0o644, "") for n, t in sorted(files.items())), "d")


@pytest.fixture(scope="module")
def check(arun, provider, slim_image):
    """Verify some files; every sandbox that was opened is gone afterwards."""
    opened = []

    def run(files, kind="pytest", hidden=None, wall_ms=20_000, collect=("/workspace/**",), environment=(),
            artefacts=None, control=None, **settings):
        plan = VerifierPlan("v", kind, settings, collect, (), wall_ms, {}, ())

        async def open_sandbox():
            spec = SandboxSpec(slim_image, role="verify", resources=Resources(memory=256 << 20, pids=64))
            sandbox = await provider.create(spec)
            opened.append(sandbox)
            return sandbox

        hidden = {"/grader/tests/test_x.py": attacks.HIDDEN} if hidden is None else hidden
        given = VerifyInput(
            plan, "/workspace", artefacts or handed_in(files), tuple(environment),
            tuple(PutFile(p, t.encode()) for p, t in hidden.items()), None, True, open_sandbox, control)
        return arun(verify(given))

    yield run
    for sandbox in opened:
        with pytest.raises(Exception):
            arun(sandbox.run(["true"]))


def test_the_oracle_passes(check):
    verdict = check({"solution.py": attacks.ORACLE}, expect=EXPECT, failing_at_start=EXPECT[:2])
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.signals == {"passed": True, "fraction": 1, "gain": 1, "failed": 0}
    assert verdict.details["tests"] == dict.fromkeys(sorted(EXPECT), "passed")


def test_a_part_is_a_part(check):
    verdict = check({"solution.py": attacks.IDLE + "def total(xs): return 6137"}, expect=EXPECT, failing_at_start=EXPECT[:2])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.signals == {"passed": False, "fraction": Fraction(1, 4), "gain": Fraction(1, 2), "failed": 3}
    assert "test_x.py::test_name" in verdict.evidence


CHOSEN = ("exit at import", "equals everything", "conftest", "sitecustomize and pth", "walks the stack", "reads proc",
          "reads the hidden tests", "forges a verdict", "garbage on the channel", "memory hog", "kills all",
          "kills the parent", "planted json, math and pytest", "skips everywhere", "fork bomb")


@pytest.mark.parametrize("name", CHOSEN)
def test_attack_fails(check, name):
    (attack,) = [a for a in [*attacks.ATTACKS, attacks.BOMB] if a.name == name]
    tree = {k: v.replace("GRADER", "/grader") for k, v in attack.tree.items()}
    verdict = check(tree, expect=EXPECT, call_wall_ms=1500)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.signals["passed"] is False
    assert attack.reason in verdict.evidence
