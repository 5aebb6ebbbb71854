"""Advantages: hand calculations, what invalid episodes may not do, and the table of algorithms."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.conf.algorithm import OPTIONS
from guerdon.runtime.credit.advantages import EPSILON, RULES, Group, advantages, permuted
from guerdon.runtime.credit.algorithms import ALGORITHMS
from guerdon.runtime.learner.losses import LOSSES

A = Group("a", (1.0, 0.0, 0.0, 1.0, 9.0), (True, True, True, True, False))
B = Group("b", (3.0, 0.0, 0.0), (True, True, True))
ROOT = math.sqrt(1 / 3)
"""The sample deviation of A's valid rewards 1, 0, 0, 1: squares 4 * 0.25 over 3; that of B is sqrt((4 + 1 + 1) / 2)."""
BATCH = math.sqrt((4 * 0.25 + 4 + 1 + 1) / 6)
"""Of the seven centred rewards 0.5, -0.5, -0.5, 0.5, 2, -1, -1, whose mean is 0."""
BY_HAND = {
    "normalised": ((0.5 / ROOT, -0.5 / ROOT, -0.5 / ROOT, 0.5 / ROOT, 0.0), (2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5)),
    "centred": ((0.5, -0.5, -0.5, 0.5, 0.0), (2.0, -1.0, -1.0)),
    "leave_one_out": ((1 - 1 / 3, -2 / 3, -2 / 3, 1 - 1 / 3, 0.0), (3.0, -1.5, -1.5)),
    "whitened": (
        (0.5 / BATCH, -0.5 / BATCH, -0.5 / BATCH, 0.5 / BATCH, 0.0), (2 / BATCH, -1 / BATCH, -1 / BATCH),
    ),
}


def test_every_rule_has_been_calculated_by_hand():
    assert set(BY_HAND) == set(RULES)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_each_rule_by_hand(rule):
    made = advantages(rule, [A, B])
    assert made.trains == (True, True) and (made.flat, made.small) == (0, 0)
    for ours, expected in zip(made.values, BY_HAND[rule], strict=True):
        assert ours == pytest.approx(expected, rel=1e-5, abs=0.0)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_groups_that_say_nothing_are_counted_and_have_no_part(rule):
    """All equal, one valid, none valid, and all equal but for an invalid one."""
    silent = [
        Group("flat", (1.0, 1.0), (True, True)), Group("one", (1.0, 0.0), (True, False)),
        Group("none", (1.0, 0.0), (False, False)), Group("flat but", (0.5, 7.0, 0.5), (True, False, True)),
    ]
    made, alone = advantages(rule, [A, *silent, B]), advantages(rule, [A, B])
    assert (made.flat, made.small) == (2, 2)
    assert made.trains == (True, False, False, False, False, True)
    assert (made.values[0], made.values[-1]) == alone.values
    assert all(a == 0.0 for values in made.values[1:-1] for a in values)
    assert [len(values) for values in made.values] == [5, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_flat_groups_may_be_kept(rule):
    made = advantages(rule, [A, Group("flat", (1.0, 1.0), (True, True)), Group("one", (1.0,), (True,))], keep_flat=True)
    assert made.trains == (True, True, False) and (made.flat, made.small) == (1, 1)
    assert made.values[1] == (0.0, 0.0)


def test_a_kept_flat_group_lowers_the_deviation_of_the_batch():
    """Two centred zeros more: deviation sqrt(1 / 5) in place of sqrt(1 / 3)."""
    made = advantages("whitened", [A, Group("flat", (1.0, 1.0), (True, True))], keep_flat=True)
    assert made.values[0][0] == pytest.approx(0.5 / math.sqrt(1 / 5), rel=1e-5)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_no_groups_at_all(rule):
    made = advantages(rule, [])
    assert made.values == () and made.trains == ()


@pytest.mark.parametrize("rule", sorted(RULES))
def test_almost_equal_rewards_are_not_blown_up(rule):
    made = advantages(rule, [Group("near", (0.1, 0.1 + 1e-12), (True, True))])
    assert max(abs(a) for a in made.values[0]) < 1e-12 / EPSILON * 1.01


def test_a_group_with_its_lengths_at_odds_is_refused():
    with pytest.raises(ValueError, match="zip"):
        advantages("centred", [Group("odd", (1.0, 2.0), (True,))])


# -- properties ------------------------------------------------------------------------------------------------------

rewards = st.integers(-8, 8).map(lambda n: n / 4)


@st.composite
def groups(draw):
    made = []
    for index in range(draw(st.integers(1, 4))):
        own = draw(st.lists(rewards, min_size=1, max_size=6))
        valid = draw(st.lists(st.booleans(), min_size=len(own), max_size=len(own)))
        made.append(Group(str(index), tuple(own), tuple(valid)))
    return made


@settings(max_examples=100, deadline=None)
@given(groups(), st.sampled_from(sorted(RULES)), rewards)
def test_what_an_invalid_episode_got_changes_nothing(given_groups, rule, other):
    changed = [
        Group(g.key, tuple(r if fine else other for r, fine in zip(g.rewards, g.valid, strict=True)), g.valid)
        for g in given_groups
    ]
    made = advantages(rule, given_groups)
    assert advantages(rule, changed) == made
    assert all(
        a == 0.0 for g, own in zip(given_groups, made.values, strict=True)
        for a, fine in zip(own, g.valid, strict=True) if not fine
    )


@settings(max_examples=100, deadline=None)
@given(groups(), st.sampled_from(sorted(RULES)), rewards)
def test_shifting_every_reward_leaves_the_advantages(given_groups, rule, shift):
    moved = [Group(g.key, tuple(r + shift for r in g.rewards), g.valid) for g in given_groups]
    for ours, theirs in zip(advantages(rule, given_groups).values, advantages(rule, moved).values, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(groups(), st.sampled_from(sorted(RULES)), st.randoms(use_true_random=False))
def test_permuting_episodes_permutes_advantages(given_groups, rule, rng):
    orders = [rng.sample(range(len(g.rewards)), len(g.rewards)) for g in given_groups]
    dealt = [
        Group(g.key, tuple(g.rewards[i] for i in order), tuple(g.valid[i] for i in order))
        for g, order in zip(given_groups, orders, strict=True)
    ]
    before, after = advantages(rule, given_groups), advantages(rule, dealt)
    for own, other, order in zip(before.values, after.values, orders, strict=True):
        assert other == tuple(own[i] for i in order)  # exactly: sums are rounded once, whatever their order


@settings(max_examples=100, deadline=None)
@given(groups())
def test_normalised_groups_have_mean_0_and_deviation_1(given_groups):
    made = advantages("normalised", given_groups)
    for group, own, trains in zip(given_groups, made.values, made.trains, strict=True):
        if trains:
            kept = [a for a, fine in zip(own, group.valid, strict=True) if fine]
            assert math.fsum(kept) == pytest.approx(0.0, abs=1e-9)
            assert statistics.stdev(kept) == pytest.approx(1.0, rel=1e-4)


# -- the control -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(groups(), st.integers(0, 2**32))
def test_the_control_deals_each_groups_own_advantages(given_groups, seed):
    made = advantages("centred", given_groups)
    dealt = permuted(made, given_groups, seed)
    assert dealt == permuted(made, given_groups, seed)
    assert (dealt.trains, dealt.flat, dealt.small) == (made.trains, made.flat, made.small)
    for group, own, other in zip(given_groups, made.values, dealt.values, strict=True):
        assert sorted(own) == sorted(other)
        assert all(a == 0.0 for a, fine in zip(other, group.valid, strict=True) if not fine)


def test_the_control_severs_reward_and_advantage():
    """Over many seeds each of four places gets each advantage in a quarter of the deals."""
    group = Group("g", (0.0, 1.0, 2.0, 3.0), (True,) * 4)
    made = advantages("centred", [group])
    deals = [permuted(made, [group], seed).values[0] for seed in range(2000)]
    for place in range(4):
        counts = [sum(deal[place] == a for deal in deals) for a in made.values[0]]
        assert all(430 < count < 570 for count in counts), counts  # 500 give or take 3.6 deviations


# -- the table -------------------------------------------------------------------------------------------------------


def test_the_table_names_what_there_is():
    for name, one in ALGORITHMS.items():
        assert one.name == name and one.advantage in RULES and one.loss.name in LOSSES
        assert "arXiv:" in one.paper and one.about


def test_the_configuration_offers_each_algorithm_with_its_constants():
    assert set(OPTIONS) == set(ALGORITHMS)
    for name, option in OPTIONS.items():
        loss = ALGORITHMS[name].loss
        assert (option.name, option.clip_low, option.clip_high) == (name, loss.clip_low, loss.clip_high)
