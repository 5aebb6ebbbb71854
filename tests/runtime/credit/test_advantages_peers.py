"""Advantages against TRL and numpy, and under a change of the rewards' scale."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.runtime.credit.advantages import EPSILON, RULES, Group, advantages

TRL = json.loads((Path(__file__).parent / "trl_advantages.json").read_text())
TRL_EPSILON = 1e-4
GROUPS = [
    Group(str(i), tuple(0.75 if one is None else one for one in rewards), tuple(one is not None for one in rewards))
    for i, rewards in enumerate(TRL["rewards"])
]
"""TRL's rewards that are missing are our invalid episodes, whatever number stands there."""


@pytest.mark.parametrize("rule", sorted(TRL["found"]))
def test_advantages_are_those_of_trl(rule):
    made = advantages(rule, GROUPS)
    assert TRL["trl"].startswith("1.16") and (made.flat, made.small) == (2, 2)
    for group, ours, theirs in zip(GROUPS, made.values, TRL["found"][rule], strict=True):
        factor = 1.0
        if rule == "normalised" and any(ours):  # what is added to the deviation differs
            deviation = statistics.stdev(group.kept())
            factor = (deviation + EPSILON) / (deviation + TRL_EPSILON)
        assert [a * factor for a in ours] == pytest.approx(theirs, rel=1e-7, abs=1e-12)  # its n / (n - 1) is a float32


def test_trls_rewards_are_a_test():
    """Every rule tells apart, and groups of all kinds are among them."""
    first = [tuple(TRL["found"][rule][0]) for rule in sorted(TRL["found"])]
    assert len(set(first)) == 3
    assert sorted(len(group.kept()) for group in GROUPS) == [0, 1, 3, 4, 4, 5, 5]


def test_whitened_by_numpy():
    kept = [np.array(group.kept()) for group in GROUPS if len(group.kept()) > 1 and len(set(group.kept())) > 1]
    batch = np.concatenate([rewards - rewards.mean() for rewards in kept])
    expected = (batch - batch.mean()) / (batch.std(ddof=1) + EPSILON)
    made = advantages("whitened", GROUPS)
    ours = [a for group, own in zip(GROUPS, made.values, strict=True)
            for a, fine in zip(own, group.valid, strict=True) if fine and any(own)]
    assert ours == pytest.approx(expected.tolist(), rel=1e-12)
    assert np.std(ours, ddof=1) == pytest.approx(1.0, rel=1e-5) and np.mean(ours) == pytest.approx(0.0, abs=1e-12)


quarters = st.integers(-8, 8).map(lambda n: n / 4)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.tuples(quarters, st.booleans()), min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from(sorted(RULES)), st.sampled_from([0.25, 0.5, 3.0, 1000.0]),
)
def test_the_scale_of_the_rewards(drawn, rule, scale):
    """Rules that divide by a deviation do not see it; the others are as many times larger."""
    groups = [Group(str(i), tuple(r for r, _ in one), tuple(fine for _, fine in one)) for i, one in enumerate(drawn)]
    scaled = [Group(g.key, tuple(r * scale for r in g.rewards), g.valid) for g in groups]
    factor = 1.0 if rule in ("normalised", "whitened") else scale
    for own, other in zip(advantages(rule, groups).values, advantages(rule, scaled).values, strict=True):
        assert other == pytest.approx([a * factor for a in own], rel=1e-4, abs=1e-9)
