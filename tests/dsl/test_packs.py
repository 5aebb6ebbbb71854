"""Six packs of different domains: all parse, and their trees say what their texts say."""

from fractions import Fraction
from pathlib import Path

import pytest

from guerdon.dsl import tree
from guerdon.dsl.parser import parse, read

PACKS = Path(__file__).parents[1] / "packs"
STATEMENTS = {"data": 7, "doc": 8, "fix_bug": 8, "math": 5, "ops": 6, "swe": 7}


def load(name):
    source = read(PACKS / f"{name}.task", f"{name}.task")
    file, found = parse(source)
    assert found == ()
    return file


@pytest.mark.parametrize("name", STATEMENTS)
def test_parses_without_a_report(name):
    assert len(load(name).items) == STATEMENTS[name]


def test_no_pack_is_forgotten():
    assert {p.stem for p in PACKS.glob("*.task")} == set(STATEMENTS)


def test_terms_of_fix_bug():
    reward = next(i for i in load("fix_bug").items if i.word.text == "reward")
    terms = {t.name.text: t for t in reward.all("term")}
    assert list(terms) == ["outcome", "progress", "clean", "effort", "breach"]
    assert terms["outcome"].weight.value == Fraction(4, 5)
    assert terms["progress"].range.high.value == Fraction(1, 5)
    effort = terms["effort"].weight
    assert (effort.op, effort.operand.value, effort.span.text) == ("-", Fraction(1, 20), "-0.05")
    claims = [i.claim for i in reward.all("ensure")]
    assert [type(c) for c in claims] == [tree.Outranks, tree.Monotone, tree.Binary]
    assert claims[0].margin.value == Fraction(1, 2)
    assert (claims[1].direction, claims[1].strictly, claims[1].signal.span.text) == ("rises", False, "tests.gain")


def test_loop_and_demonstrations_of_fix_bug():
    task = load("fix_bug").items[-1]
    assert (task.name.text, task.loop.row.text, task.loop.dataset.text) == ("fix_bug", "row", "bugs")
    put, call, submit = task.find("solution").body
    assert put.args[0].value.literal == "/tmp/gold.patch" and put.find("from").value.fn.text == "file"
    assert [e.literal for e in call.args[0].value.items] == ["git", "apply", "/tmp/gold.patch"]
    assert (submit.word.text, submit.name.text, submit.args) == ("call", "submit", ())
    assert task.find("exploit").label.literal == "edits the tests"


def test_a_claim_goes_on_in_the_next_line_in_ops():
    reward = next(i for i in load("ops").items if i.word.text == "reward")
    first, second = reward.all("ensure")
    assert first.claim.margin.value == Fraction(1, 10)
    assert (second.claim.left.name, second.claim.op, second.claim.right.name) == ("late", ">", "quit")


def test_types_and_modifiers_of_swe():
    dataset = next(i for i in load("swe").items if i.word.text == "dataset")
    fields = {f.word.text: f.type for f in dataset.find("schema").body}
    assert fields["fails"].element.name.text == "string"
    assert [m.text for m in fields["fails"].modifiers] == ["secret"]


def test_prompt_of_math_is_dedented_unescaped_and_filled():
    prompt = load("math").items[-1].find("prompt").value
    row, rest = prompt.parts
    assert row.span.text == "row.question"
    assert rest == "\nPut the answer in \\boxed{}.\n"
