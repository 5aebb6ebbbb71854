"""Answers, comparisons, placement, evidence, signals and the settling of unclear runs: no sandbox needed."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.compiler.plan.expr import Apply, Const, Symbol
from guerdon.compiler.plan.schema import SignalPlan, VerifierPlan
from guerdon.runtime.contracts.sandbox import Artefact, Artefacts, PutFile, SandboxFault
from guerdon.runtime.contracts.trajectory import Outcome, Verdict
from guerdon.runtime.contracts.verifier import VerifyInput
from guerdon.runtime.verify import KINDS, compare, harness, verify
from guerdon.runtime.verify.evidence import LIMIT, clean
from guerdon.runtime.verify.placement import collected, place
from guerdon.runtime.verify.pytest_kind import _signals, hidden_folder
from guerdon.runtime.verify.settle import Unclear, failed, settle
from guerdon.runtime.verify.signals import checked

NOTHING = Artefacts((), "d")


def given_for(kind, text=None, submitted=True, hidden=(), artefacts=NOTHING, control=None, **settings):
    async def no_sandbox():
        raise SandboxFault("create-failed", "none can be made here")

    plan = VerifierPlan("v", kind, settings, ("/w/**",), (), 1000, {}, ())
    return VerifyInput(plan, "/w", artefacts, (), hidden, text, submitted, no_sandbox, control)


def answer(text, submitted=True, **settings):
    verdict = asyncio.run(verify(given_for("answer", text, submitted, **settings)))
    return verdict.outcome.value, verdict.signals.get("parsed")


@pytest.mark.parametrize(("text", "settings", "want"), [
    ("42", {"expected": "42"}, ("pass", True)),
    (" 42\n", {"expected": "42"}, ("pass", True)),
    (" 42", {"expected": "42", "compare": "exact"}, ("fail", True)),
    ("41 42 43", {"expected": "42"}, ("fail", True)),
    ("41 42 43", {"expected": "42", "compare": "number"}, ("fail", False)),
    ("42.0", {"expected": "42", "compare": "number"}, ("pass", True)),
    ("0.1e1", {"expected": "1", "compare": "number"}, ("pass", True)),
    ("1,234", {"expected": "1234", "compare": "number"}, ("pass", True)),
    ("1,23", {"expected": "123", "compare": "number"}, ("fail", False)),
    ("2/4", {"expected": "0.5", "compare": "number"}, ("pass", True)),
    ("0.5000001", {"expected": "0.5", "compare": "number"}, ("fail", True)),
    ("0.51", {"expected": "0.5", "compare": "number", "close": "1/100"}, ("pass", True)),
    ("0.5101", {"expected": "0.5", "compare": "number", "close": "1/100"}, ("fail", True)),
    ("nan", {"expected": "0", "compare": "number"}, ("fail", False)),
    ("inf", {"expected": "0", "compare": "number", "close": "1"}, ("fail", False)),
    ("1e999999", {"expected": "0", "compare": "number"}, ("fail", False)),
    ("1/0", {"expected": "0", "compare": "number"}, ("fail", False)),
    ("__import__('os')", {"expected": "0", "compare": "number"}, ("fail", False)),
    ("٤٢", {"expected": "42", "compare": "number"}, ("fail", False)),
    ("yes", {"expected": ["no", "yes"], "compare": "one_of"}, ("pass", True)),
    ("no yes", {"expected": ["no", "yes"], "compare": "one_of"}, ("fail", True)),
    (r"so \boxed{\frac{1}{2}}.", {"expected": r"\frac{1}{2}", "from": "boxed"}, ("pass", True)),
    (r"\boxed{1} or \boxed{2}", {"expected": "2", "from": "boxed"}, ("fail", False)),
    (r"\boxed{2} … \boxed{2}", {"expected": "2", "from": "boxed"}, ("pass", True)),
    (r"\boxed{2", {"expected": "2", "from": "boxed"}, ("fail", False)),
    ("<a>1</a><a>2</a>", {"expected": "2", "from": "tag:a"}, ("fail", False)),
    ("<a>1<a>2</a>", {"expected": "2", "from": "tag:a"}, ("pass", True)),
    ("it is <a> 2 </a>!", {"expected": "2", "from": "tag:a"}, ("pass", True)),
    ("", {"expected": "", "from": "final"}, ("fail", False)),
    (None, {"expected": "2"}, ("fail", False)),
    ("x" * (1 << 21), {"expected": "x"}, ("fail", False)),
])  # fmt: skip
def test_answers(text, settings, want):
    assert answer(text, **settings) == want


def test_last_words_are_no_submission():
    assert answer("42", submitted=False, expected="42") == ("fail", False)
    assert answer("42", submitted=False, expected="42", **{"from": "final"}) == ("pass", True)


@pytest.mark.parametrize(("submitted", "source", "says"), [
    (False, "submit", "nothing was submitted"), (True, "submit", "no single answer in the submission"),
    (False, "boxed", "no single answer in \\boxed{…}"), (True, "tag:a", "no single answer in <a>…</a>"),
])  # fmt: skip
def test_a_missing_answer_says_where_one_was_looked_for(submitted, source, says):
    given = given_for("answer", " ", submitted, expected="2", **{"from": source})
    assert says in asyncio.run(verify(given)).reason


def test_a_defective_setting_is_invalid():
    assert answer("1", expected=7)[0] == "invalid"
    assert answer("1", expected="1", compare="eval")[0] == "invalid"
    assert answer("1", expected="1", compare="number", close="wide")[0] == "invalid"
    assert asyncio.run(verify(given_for("oracle"))).outcome is Outcome.INVALID


@given(st.fractions(), st.integers(0, 12))
def test_written_numbers_are_read_exactly(value, digits):
    scaled = round(value * 10**digits)
    sign, body = "-" if scaled < 0 else "", str(abs(scaled)).rjust(digits + 1, "0")
    text = sign + body[: len(body) - digits] + ("." + body[len(body) - digits :] if digits else "")
    assert compare.number(text) == Fraction(scaled, 10**digits)
    assert compare.number(f"{value.numerator}/{value.denominator}") == value


@given(st.text(max_size=30))
def test_no_text_breaks_the_number_reader(text):
    assert compare.number(text) is None or isinstance(compare.number(text), Fraction)


@pytest.mark.parametrize(("kind", "got", "want", "same"), [
    ("exact", "a\n", "a", False), ("trimmed", "\n a  \nb\n\n", "a\nb", True), ("trimmed", "a b", "a  b", False),
    ("tokens", "a   b\nc", "a b c", True), ("tokens", "ab", "a b", False),
    ("number", "x 2.0", "x 2", True), ("number", "x 2.02", "x 2", False), ("number", "x 2.01", "x 2", True),
    ("number", "2 2", "2", False), ("number", "nan", "2", False), ("number", "y 2", "x 2", False),
])  # fmt: skip
def test_output_comparisons(kind, got, want, same):
    assert compare.COMPARES[kind](got, want, Fraction(1, 100)) is same


@pytest.mark.parametrize(("glob", "path", "inside"), [
    ("/w/**", "/w/a/b.py", True), ("/w/**", "/wx/a", False), ("/w/*.py", "/w/a.py", True),
    ("/w/*.py", "/w/a/b.py", False),
    ("/w/**/*.py", "/w/b.py", True), ("/w/**/*.py", "/w/a/c/b.py", True), ("/w/?.[ab]", "/w/x.a", True),
    ("/w/?.[!ab]", "/w/x.a", False), ("/w/a.py", "/w/aXpy", False), ("/w/[", "/w/[", True), ("/w/*", "/w/a\nb", True),
])  # fmt: skip
def test_globs(glob, path, inside):
    assert collected(path, [glob]) is inside


def art(path, data=b"new", mode=0o644):
    return Artefact(path, data, mode, "")


def test_artefacts_replace_and_never_merge():
    environment = (PutFile("/w/src/old.py", b"old"), PutFile("/w/src/kept.py", b"old"), PutFile("/w/tests/t.py", b"t"))
    files = place(environment, Artefacts((art("/w/src/kept.py"), art("/w/src/run", mode=0o4755)), "d"), ["/w/src/**"])
    assert {f.path: (f.data, f.mode) for f in files} == {
        "/w/tests/t.py": (b"t", 0o644), "/w/src/kept.py": (b"new", 0o444), "/w/src/run": (b"new", 0o555)}


def test_nothing_is_placed_where_it_does_not_belong():
    paths = ("/w/../etc/x", "/grader/tests/test_x.py", "/x", "w/rel", "/w//d", "/w/a/b", "/w/d", "/w/ok")
    hostile = [art(p) for p in paths]
    files = place((PutFile("/w/d/e", b"env"), PutFile("/w/a", b"env")), Artefacts(tuple(hostile), "d"),
                  ["/w/o*", "/w/a/*", "/w/d", "/w/../**", "/grader/**", "w/*", "/w//*"])
    assert [f.path for f in files] == ["/w/d/e", "/w/a", "/w/ok"]


@given(st.text())
def test_evidence_is_harmless_and_bounded(text):
    shown = clean(text + "\x1b[2J\x1b]0;title\x07\x9b31m\u202e" + text * 20)
    assert len(shown.encode()) <= LIMIT
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or c in "\x7f\x9b\u202e"]
    assert clean("a\x1b[31mb\x1b[0m") == "ab"


BOOL, INT = SignalPlan("bool", None, None, "up"), SignalPlan("int", "0", "3", "")
REAL = SignalPlan("real", "0", "1", "up")


@pytest.mark.parametrize(("declared", "value", "fine"), [
    (BOOL, True, True), (BOOL, Fraction(1), False), (INT, Fraction(3), True), (INT, Fraction(4), False),
    (INT, Fraction(-1), False), (INT, Fraction(1, 2), False), (INT, True, False), (REAL, Fraction(1, 3), True),
    (REAL, Fraction(3, 2), False), (REAL, "1", False),
])  # fmt: skip
def test_a_signal_out_of_its_type_or_range_is_never_a_score(declared, value, fine):
    plan = VerifierPlan("v", "answer", {}, (), (), 1, {"s": declared}, ())
    verdict = checked(plan, Verdict(Outcome.PASS, {"s": value}))
    assert verdict.outcome is (Outcome.PASS if fine else Outcome.INVALID)
    assert fine or "signal s" in verdict.reason
    assert checked(plan, Verdict(Outcome.FAIL, {})).outcome is Outcome.INVALID


def test_a_broken_fact_is_never_a_score():
    full = Apply("==", (Symbol("signal", ("", "gain")), Const(Fraction(1))))
    fact = Apply("implies", (Symbol("signal", ("", "passed")), full))
    plan = VerifierPlan("v", "pytest", {}, (), (), 1, {}, (fact,))
    assert checked(plan, Verdict(Outcome.PASS, {"passed": True, "gain": Fraction(1)})).outcome is Outcome.PASS
    assert checked(plan, Verdict(Outcome.FAIL, {"passed": False, "gain": Fraction(0)})).outcome is Outcome.FAIL
    broken = checked(plan, Verdict(Outcome.PASS, {"passed": True, "gain": Fraction(0)}))
    assert broken.outcome is Outcome.INVALID
    assert "fact 1" in broken.reason
    assert checked(plan, Verdict(Outcome.PASS, {"gain": Fraction(0)})).outcome is Outcome.INVALID


@pytest.mark.parametrize(("settings", "tests", "want"), [
    ({}, {}, (False, 0, 1, 0)),
    ({}, {"a": "passed"}, (True, 1, 0, 1)),
    ({}, {"a": "skipped"}, (False, 0, 1, 0)),
    ({}, {"a": "passed", "b": "xfailed"}, (False, Fraction(1, 2), 1, Fraction(1, 2))),
    ({"expect": ["a", "b"]}, {"a": "passed"}, (False, Fraction(1, 2), 1, Fraction(1, 2))),
    ({"expect": ["a"]}, {"a": "passed", "b": "failed"}, (False, Fraction(1, 2), 1, Fraction(1, 2))),
    ({"expect": ["a"]}, {"a": "passed", "b": "skipped"}, (True, 1, 0, 1)),
    ({"expect": []}, {}, (False, 0, 1, 0)),
    ({"expect": ["a", "b"], "failing_at_start": ["b"]}, {"a": "passed", "b": "failed"}, (False, Fraction(1, 2), 1, 0)),
    ({"expect": ["a", "b"], "failing_at_start": ["b"]}, {"a": "failed", "b": "passed"}, (False, Fraction(1, 2), 1, 1)),
    ({"expect": ["a"], "failing_at_start": []}, {"a": "passed"}, (True, 1, 0, 1)),
    ({"expect": ["a"], "failing_at_start": []}, {"a": "failed"}, (False, 0, 1, 0)),
])  # fmt: skip
def test_signals_of_test_outcomes(settings, tests, want):
    found = _signals(VerifierPlan("v", "pytest", settings, (), (), 1, {}, ()), tests)
    assert (found["passed"], found["fraction"], found["failed"], found["gain"]) == want


def test_ids_are_relative_to_the_hidden_folder():
    assert hidden_folder(["/grader/tests/a/test_x.py", "/grader/data/y"]) == "/grader/tests"
    assert hidden_folder(["/grader/hidden/test_x.py", "/grader/hidden/sub/y"]) == "/grader/hidden"


def test_only_one_line_with_the_nonce_is_a_verdict():
    line = b'guerdon-verdict abc {"tests": {}}\n'
    assert harness.parse(b"noise\n" + line, "abc") == {"tests": {}}
    other = line.replace(b"abc", b"abd")
    for forged in (b"", line + line, other, b"x" + line, b"guerdon-verdict abc [1]\n", line[:-4]):
        assert harness.parse(forged, "abc") is None


def test_unlocked_ids_and_missing_tests_are_invalid():
    verdict = asyncio.run(verify(given_for("pytest", expect="locked", hidden=(PutFile("/grader/tests/t.py", b""),))))
    assert verdict.outcome is Outcome.INVALID
    assert "guerdon lock" in verdict.reason
    assert asyncio.run(verify(given_for("pytest"))).outcome is Outcome.INVALID


def test_artefacts_past_their_bounds_fail_without_a_sandbox():
    big = Artefacts((), "d", problem="more than 2000 files")
    hidden = (PutFile("/grader/tests/t.py", b""),)
    for kind, settings in (("pytest", {}), ("exec", {"argv": ["true"]}), ("stdout", {"run": ["true"], "expected": ""})):
        verdict = asyncio.run(verify(given_for(kind, hidden=hidden, artefacts=big, **settings)))
        assert verdict.outcome is Outcome.FAIL
        assert verdict.signals["passed"] is False
        assert "2000" in verdict.reason


def test_no_sandbox_is_a_fault_and_no_verdict():
    with pytest.raises(SandboxFault):
        asyncio.run(verify(given_for("exec", argv=["true"])))


@pytest.mark.parametrize(("argv", "collect"), [(["/w/check"], "/w/**"), (["check"], "/usr/**"), (["./c"], "/w/**")])
def test_a_check_that_the_agent_could_replace_is_invalid(argv, collect):
    given_ = given_for("exec", argv=argv)
    plan = VerifierPlan("v", "exec", {"argv": argv}, (collect,), (), 1000, {}, ())
    given_ = VerifyInput(plan, "/w", NOTHING, (), (), None, True, given_.open_sandbox)
    verdict = asyncio.run(KINDS["exec"].run(given_))
    assert verdict.outcome is Outcome.INVALID
    assert "replace" in verdict.reason


GOOD, LOST = Verdict(Outcome.PASS, {"passed": True}), {"passed": False}
CONTROL = Artefacts((art("/w/oracle"),), "o")


@pytest.mark.parametrize(("candidate", "oracle", "control", "want"), [
    (["lost", GOOD], [], CONTROL, Outcome.PASS),
    (["lost", "lost"], [GOOD], CONTROL, Outcome.FAIL),
    (["lost", "lost"], ["lost"], CONTROL, Outcome.INVALID),
    (["lost", "lost"], [failed(LOST, "wrong")], CONTROL, Outcome.INVALID),
    (["lost", "lost"], [], None, Outcome.INVALID),
    ([GOOD], [], CONTROL, Outcome.PASS),
])  # fmt: skip
def test_what_is_unclear_is_settled_by_the_control(candidate, oracle, control, want):
    runs = {"d": list(candidate), "o": list(oracle)}

    async def attempt(now):
        result = runs[now.artefacts.digest].pop(0)
        if result == "lost":
            raise Unclear("the sandbox was lost")
        return result

    async def ask():
        return control

    verdict = asyncio.run(settle(given_for("pytest", control=ask), attempt, LOST))
    assert verdict.outcome is want
    assert runs == {"d": [], "o": []}
    assert want is not Outcome.FAIL or verdict.signals == LOST
