"""Any sealed episode survives being written and read, to the last bit."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.runtime.contracts.trajectory import (
    Counters,
    EpisodeSpec,
    Message,
    Outcome,
    Reward,
    Sealed,
    Step,
    Tokens,
    ToolCall,
    Trajectory,
    Turn,
    Verdict,
)
from guerdon.runtime.store.codec import decode, encode

text = st.text(st.characters(), max_size=8)  # lone surrogates among them: a policy may send anything
number = st.integers(0, 2**63)
floats = st.floats(allow_nan=False, allow_infinity=False)
small = {"max_size": 2}


def tuples(of):
    return st.lists(of, max_size=2).map(tuple)


values = st.recursive(st.booleans() | st.fractions() | text, tuples, max_leaves=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, **small) | st.dictionaries(text, inner, **small), max_leaves=4,
)
messages = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), text,
    tuples(st.builds(ToolCall, text, text, text)), text,
)
ids = tuples(number)
tokens = st.builds(Tokens, ids, tuples(floats), ids, number)
steps = st.builds(
    Step, st.builds(Turn, messages, tuples(text), st.none() | tokens), tuples(messages), floats
)
counters = st.builds(Counters, *[number] * 6, st.booleans(), st.booleans(), number)
specs = st.builds(EpisodeSpec, text, text, text, number, number, text)
trajectories = st.builds(
    Trajectory, specs, tuples(messages), tuples(steps), counters, st.none() | text, text, tuples(text)
)
verdicts = st.builds(
    Verdict, st.sampled_from(Outcome), st.dictionaries(text, values, **small), text, text, floats,
    st.dictionaries(text, json_values, **small),
)
rewards = st.builds(Reward, text, floats, st.dictionaries(text, text, **small), st.booleans())
sealed = st.builds(
    Sealed, trajectories, st.sampled_from(Outcome), st.dictionaries(text, verdicts, **small), st.none() | rewards,
    text, st.dictionaries(text, floats, **small),
)


@settings(max_examples=150, deadline=None)
@given(sealed)
def test_round_trip(episode):
    line = encode(episode)
    assert b"\n" not in line
    again = decode(line)
    assert again == episode
    assert encode(again) == line


def test_negative_zero_keeps_its_sign(episode_of):
    line = encode(episode_of(0, value=-0.0))
    assert str(decode(line).reward.value) == "-0.0"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_reward_that_is_no_number_is_written(episode_of, value):
    with pytest.raises(ValueError):
        encode(episode_of(0, value=value))


def test_rationals_are_exact(episode_of):
    episode = episode_of(0, signals={"gain": Fraction(1, 3)})
    assert json.loads(encode(episode))["verdicts"]["v"]["signals"]["gain"] == ["num", "1/3"]
    assert decode(encode(episode)).verdicts["v"].signals["gain"] == Fraction(1, 3)


@pytest.mark.parametrize("change", [
    lambda d: d.pop("format"), lambda d: d.update(more=1), lambda d: d.pop("outcome"),
    lambda d: d.update(outcome="maybe"), lambda d: d["trajectory"]["counters"].update(turns="3"),
    lambda d: d["trajectory"]["counters"].update(truncated=1),
    lambda d: d["verdicts"]["v"].update(signals={"x": ["+", ["num", "1"], ["num", "2"]]}),
])
def test_what_is_no_sealed_episode_is_refused(episode_of, change):
    document = json.loads(encode(episode_of(0)))
    change(document)
    with pytest.raises(ValueError):
        decode(json.dumps(document).encode())
