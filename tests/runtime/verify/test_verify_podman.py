"""End to end: hidden tests, artefacts and attacks in real verification sandboxes."""

from __future__ import annotations

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from guerdon.compiler.plan.schema import VerifierPlan
from guerdon.runtime.contracts.sandbox import Artefact, Artefacts, PutFile, Resources, SandboxFault, SandboxSpec
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
    """Verify some files; the first and last sandbox opened are gone afterwards."""
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
    assert opened
    for sandbox in (opened[0], opened[-1]):
        with pytest.raises(SandboxFault):
            arun(sandbox.run(["true"]))


def test_the_oracle_passes(check):
    verdict = check({"solution.py": attacks.ORACLE}, expect=EXPECT, failing_at_start=EXPECT[:2])
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.signals == {"passed": True, "fraction": 1, "gain": 1, "failed": 0}
    assert verdict.details["tests"] == dict.fromkeys(sorted(EXPECT), "passed")


def test_a_part_is_a_part(check):
    part = attacks.IDLE + "def total(xs): return 6137"
    verdict = check({"solution.py": part}, expect=EXPECT, failing_at_start=EXPECT[:2])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.signals == {"passed": False, "fraction": Fraction(1, 4), "gain": Fraction(1, 2), "failed": 3}
    assert "test_x.py::test_name" in verdict.evidence


CHOSEN = ("exit at import", "equals everything", "conftest", "sitecustomize and pth", "reads proc",
          "reads the hidden tests", "forges a verdict", "memory hog", "kills all", "kills the parent", "fork bomb")


@pytest.mark.parametrize("name", CHOSEN)
def test_attack_fails(check, name):
    (attack,) = [a for a in [*attacks.ATTACKS, attacks.BOMB] if a.name == name]
    tree = {k: v.replace("GRADER", "/grader") for k, v in attack.tree.items()}
    verdict = check(tree, expect=EXPECT, call_wall=1500)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.signals["passed"] is False
    assert attack.reason in verdict.evidence


def outcome(verdict):
    return verdict.outcome.value, int(verdict.signals["exit_code"]) if "exit_code" in verdict.signals else None


def test_exec_runs_the_candidate_without_rights(check):
    script = ("import os, sys\n"
              "sys.exit(0 if os.getuid() == 1000 and sorted(os.environ) == ['HOME', 'LANG', 'PATH'] else 3)")
    for code, want in ((script, ("pass", 0)), ("raise SystemExit(7)", ("fail", 7)), ("while True: pass", ("fail", -9))):
        verdict = check({"main.py": code}, "exec", hidden={}, wall_ms=2000, argv=["python3", "-B", "main.py"])
        assert outcome(verdict) == want, verdict


def test_a_trusted_check_drops_rights_for_the_candidate(check):
    judge = ("import os, subprocess, sys\nassert os.getuid() == 0\n"
             "me = os.environ['GUERDON_CANDIDATE']\n"
             "def ask(*argv): return subprocess.run([me, *argv], capture_output=True, text=True)\n"
             "assert ask('cat', '/grader/check.py').returncode != 0\n"
             "sys.exit(ask('python3', 'main.py', '20').stdout.split() != ['1000', '40'])\n")
    main = "import os, sys\nprint(os.getuid(), int(sys.argv[1]) * 2)"
    for code, want in ((main, "pass"), (main.replace("* 2", "* 3"), "fail"), ("import os\nos._exit(0)", "fail")):
        verdict = check({"main.py": code}, "exec", hidden={"/grader/check.py": judge},
                        argv=["python3", "/grader/check.py"])
        assert verdict.outcome.value == want, verdict


def test_stdout_is_compared_outside(check):
    program = "print(sum(map(int, input().split())), 0.1 + 0.2)"
    settings = {"run": ["python3", "main.py"], "stdin": "1 2 3\n", "expected": "6 0.3"}
    def say(code, **more):
        return check({"main.py": code}, "stdout", hidden={}, **{**settings, **more})
    assert outcome(say(program)) == ("fail", 0)
    assert outcome(say(program, compare="number", close="1/1000000")) == ("pass", 0)
    assert outcome(say("print('6 0.3')\nraise SystemExit(1)")) == ("fail", 1)
    assert outcome(say("print('6 0.3')\nraise SystemExit(1)", exit=None)) == ("pass", 1)
    flood = say("import sys\nwhile True: sys.stdout.write('6 0.3 ' * 100000)", wall_ms=2000)
    assert flood.outcome is Outcome.FAIL
    assert len(flood.evidence.encode()) <= 4096


def test_what_was_not_handed_in_is_not_there(check):
    probe = ("import os\nassert not os.path.exists('old.py')\nassert open('kept.txt').read() == 'env'\n"
             "for path in ('main.py', 'kept.txt'):\n"
             "  try: open(path, 'w')\n  except OSError: continue\n  raise SystemExit(9)\n"
             "try: os.rename('main.py', 'x.py')\nexcept OSError: raise SystemExit(0)\nraise SystemExit(8)")
    environment = (PutFile("/workspace/old.py", b""), PutFile("/workspace/kept.txt", b"env"))
    verdict = check({"main.py": probe}, "exec", hidden={}, collect=("/workspace/*.py",), environment=environment,
                    argv=["python3", "-B", "main.py"])
    assert outcome(verdict) == ("pass", 0), verdict


def test_artefacts_that_do_not_fit_are_the_candidates_doing(check):
    oracle = handed_in({"solution.py": attacks.ORACLE})
    big = Artefacts(tuple(Artefact(f"/workspace/{n}", bytes(1 << 24), 0o644, "") for n in range(5)), "big")

    async def control():
        return oracle

    assert check({}, artefacts=big, control=control).outcome is Outcome.FAIL
