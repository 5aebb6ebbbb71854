"""Checkpoints: exact at the same layout, the same numbers in another, and never half of one."""

import pytest

CLOSE = 1e-5


def tensors_apart(left, right):
    assert list(left) == list(right)
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize(
    ("name", "saved"), [("one_again", "one"), ("dp2_again", "dp2"), ("distopt_again", "tp2_dp2_sp_distopt")]
)
def test_resuming_at_the_same_ranks_is_exact(layouts, name, saved):
    again, whole = layouts(name), layouts(saved)
    assert again["metrics"] == whole["metrics"][1:]
    assert again["digest"] == whole["digest"] != layouts("pp2")["digest"]
    assert again["reference"] == whole["reference"]


@pytest.mark.parametrize("name", ["one_from_tp2_pp2", "pp2_from_tp2", "tp2_from_distopt", "one_from_distopt"])
def test_resuming_at_other_ranks_gives_the_same_numbers(layouts, name):
    again, whole = layouts(name), layouts("one")
    for key, value in again["metrics"][0].items():
        assert value == pytest.approx(whole["metrics"][1][key], abs=CLOSE), key
    assert tensors_apart(again["tensors"], whole["tensors"]) <= CLOSE


def test_a_checkpoint_that_is_not_whole_is_refused(layouts):
    found = layouts("faults")
    assert found["cut"].endswith("is damaged in __0_0.distcp: load an earlier one")
    assert found["flipped"].endswith("is damaged in __0_0.distcp: load an earlier one")
    assert "is not whole" in found["half"] and "__0_0.distcp is missing" in found["half"]
    assert found["manifest"].endswith("has a damaged guerdon.json: load an earlier one")
    assert "is not whole" in found["missing"] and "guerdon.json is missing" in found["missing"]
    assert "is of another model" in found["other"] and "distributed optimizer" in found["other"]
    assert found["unchanged"]


def test_a_folder_that_exists_is_not_written_over(layouts):
    assert layouts("one_again")["again"].endswith("exists already: give a new folder, or remove it")
