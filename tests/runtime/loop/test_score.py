"""Scoring: exact arithmetic, and every promise of the plan asserted again."""

from dataclasses import replace
from fractions import Fraction

import pytest

from guerdon.compiler.plan.expr import Symbol
from guerdon.compiler.plan.schema import SignalPlan
from guerdon.runtime.contracts.trajectory import Counters, Outcome, Verdict
from guerdon.runtime.loop.score import Defect, check_verdict, score


def scored(plan, passed, turns):
    instance = next(plan.instances())
    verdicts = {"right": Verdict(Outcome.PASS, {"passed": passed, "parsed": True})}
    return score(plan.plan.tasks["add"], instance, Counters(turns=turns), verdicts)


def test_exact_total_and_terms(sums):
    # By hand: 0.8 - 0.05 * 1/4 = 63/80; unsolved in 3 turns: -0.05 * 3/4 = -3/80.
    solved = scored(sums, True, 1)
    assert (solved.total, solved.value, solved.solved) == ("63/80", 0.7875, True)
    assert solved.terms == {"outcome": "4/5", "effort": "-1/80"}
    failed = scored(sums, False, 3)
    assert (failed.total, failed.solved) == ("-3/80", False)


def test_a_total_outside_its_proved_range_is_a_defect(sums):
    with pytest.raises(Defect, match="outside its proved range"):
        scored(sums, False, 12)  # 12 turns of 4 cannot be: -3/20


def test_a_reward_without_value_is_a_defect(sums):
    with pytest.raises(Defect, match="no value for right.passed"):
        score(sums.plan.tasks["add"], next(sums.instances()), Counters(), {})


@pytest.mark.parametrize(
    ("signals", "says"),
    [
        ({"passed": True}, "gave the signals"),
        ({"passed": True, "parsed": True, "more": True}, "gave the signals"),
        ({"passed": Fraction(1), "parsed": True}, "not true or false"),
        ({"passed": True, "parsed": False}, "does not hold: passed = True, parsed = False"),
    ],
)
def test_a_verdict_is_held_to_its_plan(sums, signals, says):
    verifier = next(sums.instances()).verify[0]
    check_verdict(verifier, Verdict(Outcome.PASS, {"passed": True, "parsed": True}))
    with pytest.raises(Defect, match=says):
        check_verdict(verifier, Verdict(Outcome.PASS, signals))
    check_verdict(verifier, Verdict(Outcome.INVALID, signals))


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [("real", Fraction(11, 10), "above 1"), ("real", Fraction(-1), "below 0"), ("real", True, "not a number"),
     ("int", Fraction(1, 2), "not a whole number"), ("real", "1", "not a number")],
)
def test_a_number_is_held_to_type_and_range(sums, kind, value, says):
    verifier = replace(next(sums.instances()).verify[0], signals={"n": SignalPlan(kind, "0", "1", "up")}, facts=())
    with pytest.raises(Defect, match=says):
        check_verdict(verifier, Verdict(Outcome.PASS, {"n": value}))


def test_row_values_limits_and_counters_are_symbols(sums):
    task = sums.plan.tasks["add"]
    solved = task.reward.solved
    for symbol, total in [
        (Symbol("row", ("level",)), "1/3"), (Symbol("limit", ("wall",)), "60000"),
        (Symbol("limit", ("tokens",)), "1000"), (Symbol("trajectory", ("wall",)), "7"),
    ]:
        reward = replace(task.reward, total=symbol, low="0", high="100000", solved=solved)
        instance = replace(next(sums.instances()), values={"level": "1/3"})
        verdicts = {"right": Verdict(Outcome.PASS, {"passed": True, "parsed": True})}
        assert score(replace(task, reward=reward), instance, Counters(wall_ms=7), verdicts).total == total
