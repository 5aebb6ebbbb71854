"""Guesses at mistyped words."""

import pytest

from guerdon.dsl.suggest import did_you_mean, distance

WORDS = ["task", "term", "tool", "verifier", "environment", "reward", "dataset"]


@pytest.mark.parametrize(
    ("word", "guess"),
    [
        ("taks", "task"), ("Task", "task"), ("verifer", "verifier"), ("enviroment", "environment"),
        ("rewards", "reward"), ("zebra", None), ("", None), ("x", None), ("x" * 100_000, None), ("task", None),
    ],
)
def test_guess(word, guess):
    assert did_you_mean(word, WORDS) == guess


def test_ties_do_not_depend_on_the_order():
    assert did_you_mean("cat", ["car", "cap"]) == did_you_mean("cat", ["cap", "car"]) == "cap"


@pytest.mark.parametrize(
    ("a", "b", "steps"),
    [("", "abc", 3), ("abc", "abc", 0), ("ab", "ba", 1), ("kitten", "sitting", 3), ("ca", "abc", 3)],
)
def test_distance(a, b, steps):
    assert distance(a, b) == distance(b, a) == steps
