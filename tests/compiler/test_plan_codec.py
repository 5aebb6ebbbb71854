"""Plans as JSON: canonical bytes, exact round trips, and malformed ones named by their path."""

from __future__ import annotations

import copy
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.compiler.check import compile_pack
from guerdon.compiler.plan.canonical import dumps, parse_rational, rational
from guerdon.compiler.plan.codec import PlanError, instance_from_json, plan_from_json, plan_to_json, to_json

PACKS = sorted(p for p in (Path(__file__).parents[1] / "packs").iterdir() if p.is_dir())


@pytest.fixture(scope="module", params=PACKS, ids=lambda p: p.name)
def compiled(request):
    return compile_pack(request.param)


def test_a_plan_and_its_rows_survive_the_round_trip(compiled):
    assert plan_from_json(json.loads(compiled.plan_bytes)) == compiled.plan
    for instance in compiled.instances:
        assert instance_from_json(json.loads(dumps(to_json(instance)))) == instance


def test_the_bytes_are_canonical(compiled):
    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert [k for k, _ in pairs] == sorted({k for k, _ in pairs})
        return dict(pairs)

    def refuse(text: str) -> float:
        raise AssertionError(f"a float: {text}")

    text = compiled.plan_bytes.decode("utf-8")
    data = json.loads(text, object_pairs_hook=check, parse_float=refuse, parse_constant=refuse)
    assert text == json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


JUNK = (None, True, -1, "", "x", "1/0", "1e999999999", [], {}, [[]], {"a": 1}, ["+"], ["num", "2/4"], ["num"], 1.5,
        ["if", ["bool", 1]], ["signal"], ["signal", 3], ["list", ["signal", "a", "b"]], "9" * 5000)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(p for key, value in inner for p in places(value, (*path, key)))]


@settings(deadline=None, max_examples=400)
@given(st.randoms(use_true_random=False))
def test_a_malformed_plan_is_a_plan_error_that_names_the_path(dice: random.Random) -> None:
    data = copy.deepcopy(DATA)
    for _ in range(dice.randint(1, 2)):
        *path, last = dice.choice([p for p in places(data) if p])
        node = data
        for key in path:
            node = node[key]
        change = dice.randrange(3)
        if change == 0 and isinstance(node, dict):
            del node[last]
        elif change == 1 and isinstance(node, dict):
            node["unheard_of"] = dice.choice(JUNK)
        else:
            node[last] = dice.choice(JUNK)
    try:
        plan = plan_from_json(data)
    except PlanError as problem:
        assert str(problem).startswith(("plan", "format"))  # noqa: PT017 - most mutants are refused, not all
    else:
        assert plan_from_json(plan_to_json(plan)) == plan


DATA = json.loads(compile_pack(PACKS[0]).plan_bytes)


@pytest.mark.parametrize("data", [*JUNK, {"format": "guerdon.plan/9"}, {"format": "guerdon.plan/1"}], ids=repr)
def test_junk_is_no_plan(data):
    with pytest.raises(PlanError):
        plan_from_json(data)
    with pytest.raises(PlanError):
        instance_from_json(data)


def test_a_problem_is_named_by_its_path():
    data = copy.deepcopy(DATA)
    data["tasks"]["analyse"]["limits"]["turns"] = "8"
    with pytest.raises(PlanError, match=r"^plan\.tasks\.analyse\.limits\.turns: expected int, found '8'$"):
        plan_from_json(data)
    data["tasks"]["analyse"]["limits"]["turns"] = 8
    data["tasks"]["analyse"]["reward"]["high"] = "much"
    with pytest.raises(PlanError, match=r"^plan\.tasks\.analyse\.reward\.high: expected a rational"):
        plan_from_json(data)
    data["tasks"]["analyse"]["reward"]["high"] = "6/5"
    data["tasks"]["analyse"]["reward"]["terms"][1]["expr"] = ["num", "2/4"]
    with pytest.raises(PlanError, match=r"^plan\.tasks\.analyse\.reward\.terms\[1\]\.expr: '2/4' is not"):
        plan_from_json(data)


def test_a_deep_expression_is_refused_not_a_crash():
    data = copy.deepcopy(DATA)
    deep: list[Any] = ["bool", True]
    for _ in range(5000):
        deep = ["not", deep]
    data["tasks"]["analyse"]["reward"]["solved"] = deep
    with pytest.raises(PlanError, match=r"^plan\.tasks\.analyse\.reward\.solved"):
        plan_from_json(data)


@pytest.mark.parametrize("value", [0.5, [1.0], {"a": (1, 2.0)}, {1: "x"}, float("nan")], ids=repr)
def test_no_float_and_no_odd_key_gets_into_a_canonical_document(value):
    with pytest.raises(TypeError):
        dumps(value)


@given(st.fractions())
def test_rationals_round_trip(value: Fraction) -> None:
    assert parse_rational(rational(value)) == value


@pytest.mark.parametrize("text", ["", "1.5", "1e3", "2/4", "+1", " 1", "1/0", "-0", "01", "١", "1/1", "nan", "1_0"])
def test_other_spellings_are_no_rationals(text):
    with pytest.raises((ValueError, ZeroDivisionError)):
        parse_rational(text)
