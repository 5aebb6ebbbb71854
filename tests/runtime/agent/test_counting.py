"""Counters stay in the ranges that the compiler's proofs assume."""

from hypothesis import given
from hypothesis import strategies as st

from guerdon.compiler.plan.schema import LimitsPlan
from guerdon.runtime.agent.counting import Tally


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30), st.integers(0, 10**6), st.integers(0, 10**9))
def test_counts_of_any_episode(calls, tokens, wall):
    tally = Tally(tokens=tokens)
    for call in calls:
        tally.malformed() if call is None else tally.called(call)
    made = [c for c in calls if c is not None]
    counters = tally.close(LimitsPlan(5, 1000, 60_000), wall, 2)
    assert counters.tool_calls == len(made)
    assert counters.malformed_calls == calls.count(None)
    assert counters.repeated_calls == len(made) - len(set(made))
    assert 0 <= counters.tokens <= 1000 and 0 <= counters.wall_ms <= 60_000
    assert counters.violations == 2


def test_unbounded_tokens_are_counted_whole():
    assert Tally(tokens=5000).close(LimitsPlan(5, None, 1), 0, 0).tokens == 5000
