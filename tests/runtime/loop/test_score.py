"""Scoring: exact arithmetic, and every promise of the plan asserted again."""

from dataclasses import replace

import pytest

from guerdon.compiler.plan.expr import Symbol
from guerdon.runtime.contracts.trajectory import Counters, Outcome, Verdict
from guerdon.runtime.loop.score import Defect, score


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
