"""The engine in every layout against one process, and one process against plain torch."""

import importlib.util
from pathlib import Path

import pytest


def sibling(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLOSE = 1e-5
MATRIX = ("tp2", "pp2", "dp2", "cp2", "tp2_pp2", "tp2_dp2_sp_distopt")
METRICS = {"loss", "grad_norm", "tokens", "entropy", "clip_share", "kl", "kl_reference", "ratio_max"}


def apart(left, right):
    assert [len(each) for each in left] == [len(each) for each in right]
    return max(abs(a - b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True))


def tensors_apart(left, right):
    assert list(left) == list(right)
    assert {name: t.shape for name, t in left.items()} == {name: t.shape for name, t in right.items()}
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize("name", [*MATRIX, "pp2_untied"])
def test_a_layout_equals_one_process(layouts, name):
    one, many = layouts("one_untied" if "untied" in name else "one"), layouts(name)
    for scores in ("before", "after", "reference"):
        assert apart(one[scores], many[scores]) <= CLOSE, scores
    for alone, shared in zip(one["metrics"], many["metrics"], strict=True):
        assert set(alone) == METRICS
        assert {n: v for n, v in shared.items() if abs(v - alone[n]) > CLOSE} == {}
    assert tensors_apart(one["tensors"], many["tensors"]) <= CLOSE
    assert tensors_apart(one["initial"], one["tensors"]) > 1e-3  # the steps were no rounding


def test_one_process_equals_plain_torch(layouts):
    plain, setup, one = sibling("plain"), sibling("layouts"), layouts("one")
    rows, loss = setup.rows(), setup.LOSSES[0]
    initial = {name: tensor.double() for name, tensor in one["initial"].items()}
    for row, found in zip(rows, one["before"], strict=True):
        wanted = [0.0, *plain.scores(initial, setup.SHAPE, row.ids, 0.8)[0].tolist()] if len(row.ids) > 1 else [0.0]
        assert found == pytest.approx(wanted, abs=CLOSE)
    total, length, stepped = plain.step(initial, setup.SHAPE, rows, loss, setup.LR, clip=0.2, decay=0.1, eps=1e-4)
    assert one["metrics"][0]["loss"] == pytest.approx(total, abs=CLOSE)
    assert one["metrics"][0]["grad_norm"] == pytest.approx(length, rel=CLOSE)
    assert tensors_apart(stepped, one["stepped"]) <= CLOSE


def test_untied_weights_equal_plain_torch(layouts):
    plain, setup, one = sibling("plain"), sibling("layouts"), layouts("one_untied")
    initial = {name: tensor.double() for name, tensor in one["initial"].items()}
    row, found = setup.rows()[2], one["before"][2]
    assert found == pytest.approx([0.0, *plain.scores(initial, setup.UNTIED, row.ids, 0.8)[0].tolist()], abs=CLOSE)


def test_metrics_are_those_of_their_definitions(layouts):
    setup, one = sibling("layouts"), layouts("one")
    rows, metrics = setup.rows(), one["metrics"][0]
    pairs = [
        (new, old)
        for row, scored in zip(rows, one["before"], strict=True)
        for new, old, trains in zip(scored, row.logprobs, row.mask, strict=True)
        if trains
    ]
    assert metrics["tokens"] == len(pairs) == sum(sum(row.mask) for row in rows)
    assert metrics["kl"] == pytest.approx(sum(old - new for new, old in pairs) / len(pairs), abs=CLOSE)
    assert metrics["ratio_max"] == pytest.approx(max(2.718281828459045 ** (new - old) for new, old in pairs), abs=1e-4)


def test_the_reference_stays_what_it_was(layouts):
    one = layouts("one")
    assert apart(one["reference"], one["before"]) == 0.0
    assert apart(one["after"], one["before"]) > 1e-3


def test_bf16_is_near_fp32_and_resumes_exactly(layouts):
    half, one = layouts("bf16"), layouts("one")
    assert apart(half["before"], one["before"]) < 0.1
    assert half["metrics"][0]["loss"] == pytest.approx(one["metrics"][0]["loss"], abs=0.01)
    assert half["digest"] == half["again"]


def test_faults_name_thing_and_remedy_and_leave_the_weights(layouts):
    found = layouts("faults")
    assert found["infinite"].startswith("the loss is not finite: lower the learning rate")
    assert found["empty"] == "no row of the batch has an id that trains: every trajectory is invalid or empty"
    assert found["unknown"].startswith("loss 'gpro' is unknown; there are ") and "grpo" in found["unknown"]
    assert found["long"] == "row 0 of the batch has 65 ids; the model takes 1 to 64"
    assert found["vocabulary"] == "row 0 of the batch has ids outside of the vocabulary of 61"
    assert found["no reference"] == "no reference policy is kept: call keep_reference first"
    assert found["unchanged"]
