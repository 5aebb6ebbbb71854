"""The six packs compile, and every verdict on a claim is the one that arithmetic by hand gives."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from guerdon.compiler.check import compile_pack

PACKS = Path(__file__).parents[1] / "packs"

# low and high of `total` and the claims' gaps, by hand from the weights, the facts of the kinds and the forbids.
BY_HAND = {
    # solved: 1 + 0.2 (rows_right == 1) - 0.05; not solved: at most 0.2 at turn 0.
    "data": ("-0.05", "1.2", {"solved outranks not solved": "1.15/0.2",
                              "solved outranks not solved by 0.5": "1.15/0.2", "idle <= 0": "0/0"}),
    # solved: 0.8 + 0.1 (share == 1) - 0 (no broken links); not solved: 0.1 + hint, which ends at 0.05 and at 0.
    "doc": ("-0.1", "0.95", {"solved outranks not solved": "0.9/0.15",
                             "solved outranks not solved by 0.5": "0.9/0.15"}),
    # solved: 0.8 + 0.1 (gain == 1) - 0.05, no breach; not solved: 0.1 of progress (clean needs solved).
    "fix_bug": ("-1.05", "0.95", {"solved outranks not solved": "0.85/0.1",
                                  "solved outranks not solved by 0.5": "0.85/0.1",
                                  "total rises with tests.gain": "", "idle <= 0": "0/0"}),
    "math": ("0", "1.05", {"solved outranks not solved": "1.05/0.05",
                           "solved outranks not solved by 0.9": "1.05/0.05"}),
    # solved: 1 - 0.1 of repeats; not solved: both milestones, 0.15. Quit: neither milestone can hold.
    "ops": ("-1.1", "1.15", {"solved outranks not solved": "0.9/0.15", "solved outranks not solved by 0.1": "0.9/0.15",
                             "late > quit": "0.9/0"}),
    "swe": ("-0.05", "1", {"solved outranks not solved": "0.95/0.1", "solved outranks not solved by 0.5": "0.95/0.1",
                           "total rises with tests.gain": ""}),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_range_and_verdicts(name):
    compiled = compile_pack(PACKS / name)
    assert compiled.errors == 0
    (task,) = compiled.plan.tasks.values()
    low, high, wanted = BY_HAND[name]
    assert (Fraction(task.reward.low), Fraction(task.reward.high)) == (Fraction(low), Fraction(high))
    assert [c.text for c in task.reward.claims] == list(wanted)
    for claim in task.reward.claims:
        assert claim.verdict == "proved"
        least, _, most = wanted[claim.text].partition("/")
        if most:
            assert f"{least}, most of" in claim.detail and f" {most}" in claim.detail.split("most of")[-1]


def test_rows_splits_and_demonstrations():
    compiled = compile_pack(PACKS / "fix_bug")
    assert [(i.row, i.task) for i in compiled.instances] == [("sign", "fix_bug"), ("mean", "fix_bug")]
    (step, *_) = compiled.instances[0].solution
    assert (step.do, step.path) == ("put", "/tmp/gold.patch")
    assert compiled.assets[step.content["asset"]] == PACKS / "fix_bug" / "gold" / "sign.patch"
    assert [e.name for e in compiled.instances[0].exploits] == ["edits the tests"]
    assert compiled.plan.unlocked == ("expected test ids of fix_bug/tests",)


def test_what_this_version_does_not_run_is_said():
    compiled = compile_pack(PACKS / "ops")
    assert compiled.plan.tasks["mend"].not_yet == ("milestones", "services")
    assert [d.code for d in compiled.diagnostics] == ["T701"]
