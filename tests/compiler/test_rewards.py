"""What is proved of a reward and what is not, each case decided by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from guerdon.compiler.check import compile_pack

ANSWER = ('verifier checked(want: string) = exec(["true"]) {\n  collect = ["/workspace/**"]',
          "verifier checked(want: string) = answer {\n  expected = want; from = {from}", "check: exec", "check: answer")


def verdicts(compiled):
    assert compiled.plan is not None, [d.message for d in compiled.diagnostics]
    return {c.text: c.verdict for c in compiled.plan.tasks["work"].reward.claims}


def reward(make, *lines, solved="check.passed", outcome="term outcome 1 = solved", rest=()):
    return make("solved = check.passed", f"solved = {solved}", "term outcome 1 = solved", outcome,
                "# reward", "\n  ".join(lines), *rest)


def codes(compiled):
    return [d.code for d in compiled.diagnostics]


def test_a_refuted_ordering_shows_both_trajectories_and_their_scores(make):
    (found,) = reward(make, "term early 0.9 = 1 - trajectory.turns / limit.turns", outcome="term outcome 0.5 = solved",
                      ).diagnostics
    assert found.code == "T301"
    # solved at the last of 4 turns: 0.5; not solved at turn 0: 0.9
    assert found.notes[0].startswith("solved can score 0.5: ") and "trajectory.turns = 4" in found.notes[0]
    assert found.notes[1].startswith("not solved can score 0.9: ") and "trajectory.turns = 0" in found.notes[1]


@pytest.mark.parametrize(("margin", "code"), [("0.9", None), ("0.90", None), ("0.9000001", "T302"), ("1", "T302")])
def test_a_margin_is_met_exactly_or_not(make, margin, code):
    compiled = reward(make, "term effort -0.1 = trajectory.turns / limit.turns",
                      f"ensure solved outranks not solved by {margin}")
    assert codes(compiled) == ([code] if code else [])


def test_a_tie_is_no_ordering(make):
    assert codes(reward(make, "term same 1 = not solved")) == ["T301"]


def test_a_waiver_is_recorded(make):
    compiled = reward(make, "term same 1 = not solved", 'allow T301 because "a test"')
    assert verdicts(compiled) == {"solved outranks not solved": "waived"}


@pytest.mark.parametrize(("solved", "never"), [
    ("check.passed or trajectory.turns >= 0", "false"), ("check.passed and trajectory.turns > limit.turns", "true"),
    ("true", "false"), ("check.passed and not check.passed", "true"), ("check.exit_code > 300", "true"),
])
def test_a_solved_that_decides_nothing(make, solved, never):
    compiled = reward(make, solved=solved)
    assert codes(compiled) == ["T307"] and f"never be {never}" in compiled.diagnostics[0].message


def test_facts_that_exclude_each_other_prove_nothing(make):
    compiled = make("# verifier", "fact passed\n  fact passed implies exit_code == 3\n  fact exit_code < 0")
    assert codes(compiled) == ["T306"]


def test_a_fact_is_used(make):
    claim = "ensure solved outranks not solved by 0.9"
    cost = "term code -0.5 = if check.exit_code == 0 then 0 else 1"
    assert codes(reward(make, cost, claim)) == ["T302"]
    assert codes(reward(make, cost, claim, rest=("# verifier", "fact passed implies exit_code == 0"))) == []


# Named trajectories ---------------------------------------------------------------------------------


def test_idle_may_take_any_number_of_turns(make):
    compiled = reward(make, "term turns 0.1 = trajectory.turns / limit.turns", "ensure idle <= 0")
    assert codes(compiled) == ["T302"] and "trajectory.turns = 4" in compiled.diagnostics[0].notes[1]


@pytest.mark.parametrize(("term", "name", "holds"), [
    ("trajectory.submitted", "idle", True), ("trajectory.submitted", "quit", False),
    ("trajectory.submitted", "refusal", True), ("trajectory.tool_calls > 0", "idle", True),
    ("trajectory.tool_calls > 0", "quit", False), ("trajectory.tool_calls > 1", "quit", True),
    ("trajectory.turns > 0", "idle", False), ("trajectory.turns > 0", "refusal", False),
    ("trajectory.turns > 1", "quit", True), ("trajectory.malformed_calls > 0", "idle", True),
    ("trajectory.repeated_calls > 0", "idle", True), ("trajectory.violations > 0", "idle", True),
    ("check.passed", "idle", True), ("check.passed", "quit", True), ("check.exit_code > 0", "idle", False),
])
def test_what_a_named_trajectory_can_earn(make, term, name, holds):
    compiled = reward(make, f"term extra 0.01 = {term}", f"ensure {name} <= 0",
                      rest=("# task", 'forbid kept = changed(["/workspace/tests/**"])'))
    assert codes(compiled) == ([] if holds else ["T302"])


def test_late_is_solved_at_the_limit_at_its_worst(make):
    cost = "term calls -0.5 = trajectory.tool_calls / 64"  # 4 turns of at most 16 calls
    assert verdicts(reward(make, cost, "ensure late >= 0.5"))["late >= 0.5"] == "proved"
    assert codes(reward(make, cost, "ensure late > 0.5")) == ["T302"]
    assert verdicts(reward(make, cost, "ensure late > quit"))["late > quit"] == "proved"


def test_what_is_said_of_idle_binds_no_other_trajectory(make):
    # Not idle: share is 1. That must not be taken to hold of every trajectory: an idle one may have any share.
    signals = "signals { share: real in 0..1 up }\n  fact not idle implies share == 1"
    compiled = reward(make, "term share 0.1 = check.share", "ensure total >= 0.1", rest=("# verifier", signals))
    assert codes(compiled) == ["T302"]
    signals = "signals { share: real in 0..1 up }\n  fact idle implies share == 0"
    line = ("term share 0.1 = check.share", "ensure idle <= 0", "ensure quit <= 0")
    assert codes(reward(make, *line, rest=("# verifier", signals))) == []


@pytest.mark.parametrize("name", ["quit", "refusal"])
def test_words_alone_can_be_read_as_an_answer(make, name):
    """`idle` says nothing; a refusal has text, and quitting may hand one in: it may parse, but does not pass."""
    rest = [part.replace("{from}", "final") for part in ANSWER]
    term = "term format 0.05 = check.parsed"
    assert codes(reward(make, term, "ensure idle <= 0", rest=rest)) == []
    assert codes(reward(make, term, f"ensure {name} <= 0", rest=rest)) == ["T302"]
    assert codes(reward(make, term, f"ensure {name} <= 0.05", rest=rest)) == []


def test_a_milestone_is_open_except_where_it_cannot_hold(make):
    rest = ("level: int in 1..5) {", "level: int in 1..5, found: bool) {", "row.level)", "row.level, milestone.found)",
            "# task", 'milestone found = said("upstream")')
    compiled = reward(make, "term found 0.05 = found", "ensure idle <= 0", "ensure solved outranks not solved by 0.95",
                      rest=rest)
    assert codes(compiled) == ["T701"]
    assert set(verdicts(compiled).values()) == {"proved"}
    beyond = "ensure solved outranks not solved by 0.96"
    assert "T302" in codes(reward(make, "term found 0.05 = found", beyond, rest=rest))


# Monotone, range, weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(("term", "claim", "verdict"), [
    ("0.1 = check.exit_code / 255", "total rises with check.exit_code", "proved"),
    ("0.1 = check.exit_code / 255", "total strictly rises with check.exit_code", "proved"),
    ("0.1 = max(0, check.exit_code) / 255", "total rises with check.exit_code", "proved"),
    ("0.1 = max(0, check.exit_code) / 255", "total strictly rises with check.exit_code", "refuted"),
    ("0.1 = abs(check.exit_code) / 255", "total rises with check.exit_code", "refuted"),
    ("-0.1 = check.exit_code / 255", "total falls with check.exit_code", "proved"),
    ("0.1 = level / 5", "total strictly rises with check.exit_code", "refuted"),
    ("0.1 = if check.exit_code > 3 then 1 else 0", "total rises with check.exit_code", "proved"),
    ("0.1 = if check.exit_code > 3 then 0 else 1", "total rises with check.exit_code", "refuted"),
    ("0.1 = level / 5", "total in 0.02..1.1", "proved"),
    ("0.1 = level / 5", "total in 0.03..1.1", "refuted"),
    ("0.1 = level / 5", "total in 0.02..1", "refuted"),
])
def test_claims_of_shape_and_range(make, term, claim, verdict):
    compiled = reward(make, f"term extra {term}", f"ensure {claim}")
    if verdict == "refuted":
        assert codes(compiled) == ["T302"]
    else:
        assert verdicts(compiled)[claim] == verdict


def test_two_trajectories_are_of_one_row(make):
    # Across rows, an unsolved one of level 5 (2) would beat a solved one of level 1 (1 + 0.4).
    compiled = reward(make, "term level 2 in 0..3 = level / 5", "ensure solved outranks not solved by 1")
    assert set(verdicts(compiled).values()) == {"proved"}
    # Not linear in the level: nothing is proved, and nothing refuted by trajectories of different rows.
    compiled = reward(make, "term level 2 in 0..3 = level * level / 25", "ensure solved outranks not solved by 1")
    assert set(codes(compiled)) == {"T303"}
    # One row refutes it: of level 5, not solved earns 3 and solved 1.
    assert "T301" in codes(reward(make, "term level 3 in 0..3 = if solved then 0 else level * level / 25"))


def test_a_weight_that_training_moves_is_shared(make):
    moving = "weight w: real in 0..1 = anneal(1, 0, over = 100)"
    # solved 1 + w, not solved w at most: shared, the gap is 1 at every w; apart it could be 0.
    compiled = reward(make, moving, "term extra w = 1", "ensure solved outranks not solved by 1")
    assert set(verdicts(compiled).values()) == {"proved"}
    # 4w(1-w) is 1 in the middle and 0 at both ends: ends alone would prove too much.
    compiled = reward(make, moving, "term bump -1 = if solved then 4 * w * (1 - w) else 0",
                      "ensure solved outranks not solved by 0.5")
    assert "T303" in codes(compiled) and "proved" not in verdicts(compiled).values()


def test_a_condition_on_a_moving_weight_is_not_lost(make):
    moving = "weight w: real in 0..1 = anneal(1, 0, over = 100)"
    claim = "ensure solved outranks not solved by 0.6"
    compiled = reward(make, moving, "term early 0.4 = w > 0.5 and not solved", claim)
    assert set(verdicts(compiled).values()) == {"proved"}
    assert "T301" in codes(reward(make, moving, "term early 1 = w > 0.5 and not solved"))


def test_an_undecided_claim_is_a_warning_and_not_proved(make):
    claim = "check.exit_code * check.exit_code - check.exit_code >= -0.25"
    compiled = reward(make, f"ensure {claim}")
    assert codes(compiled) == ["T303"] and verdicts(compiled)[claim] == "unknown"


def swept(tmp_path, **weights):
    return compile_pack(tmp_path, {"shaped": {n: Fraction(v) for n, v in weights.items()}})


def test_a_swept_weight_is_proved_anew(make, tmp_path):
    reward(make, "term extra 0.1 in 0..2 = level / 5", "ensure solved outranks not solved by 0.9")
    assert swept(tmp_path, extra="1/2").plan.tasks["work"].reward.weights["extra"] == ("1/2", "0", "2")
    assert codes(swept(tmp_path, extra="3")) == ["T203"]
    assert codes(swept(tmp_path, exta="1")) == ["T101"]
    assert "T302" in codes(swept(tmp_path, outcome="1/2"))
