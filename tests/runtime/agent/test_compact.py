"""Compact calls: what a demonstration writes is read back, and what is broken is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.compact import CompactRenderer
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message, ToolCall

BASH = ToolPlan("bash", "", {"properties": {"command": {"anyOf": [{"type": "string"}, {"type": "array"}]}}})
SUBMIT = ToolPlan("submit", "", {"properties": {"answer": {"type": "string"}}})
PUT = ToolPlan("put", "", {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}})
END = 260


def renderer():
    made = CompactRenderer()
    made.start([Message("user", "calc 1+1")], (BASH, SUBMIT, PUT))
    return made


def call(name, **arguments):
    return ToolCall("call_0", name, json.dumps(arguments))


def test_an_opening_and_a_turn_by_hand():
    made = CompactRenderer()
    assert made.start([Message("user", "hi")], (BASH,)) == (257, 104, 105, 260, 258)
    assert bytes(made.turn(Message("assistant", "", (call("bash", command="ls"),)))[:-1]) == b"<bash>ls</bash>"
    grown = made.extend((1, END), [Message("tool", "ok")])
    assert grown == (1, END, 259, 111, 107, END, 258)


@given(st.text(), st.text(), st.text())
def test_what_is_written_is_read(command, answer, content):
    message = Message("assistant", "", (
        call("bash", command=command), ToolCall("call_1", "put", json.dumps({"path": "/a", "content": content})),
        ToolCall("call_2", "submit", json.dumps({"answer": answer})),
    ))
    made = renderer()
    try:
        ids = made.turn(message)
    except ValueError:
        assert "</bash>" in command or "</submit>" in answer or "</put>" in content
        return
    if any("\ud800" <= c <= "\udfff" for c in command + answer + content):
        return
    read = made.parse(ids)
    assert isinstance(read, Action), read
    got = [(c.name, json.loads(c.arguments)) for c in read.message.calls]
    wanted = [("bash", {"command": command} if command else {}), ("put", {"path": "/a", "content": content}),
              ("submit", {"answer": answer} if answer else {})]
    assert got == wanted and not read.message.content


@pytest.mark.parametrize(
    ("text", "says"),
    [("<bash>ls", "<bash> has no other end"), ("ls</bash>", "</bash> has no other end"),
     ("<put>{oops}</put>", "no JSON object"), ("<put>[1]</put>", "no JSON object"),
     ('<put>{"a":1,"a":2}</put>', "given twice")],
)
def test_what_is_broken_is_told(text, says):
    read = renderer().parse((*text.encode(), END))
    assert isinstance(read, Malformed) and says in read.errors[0] and not read.message.calls


def test_only_known_tools_are_calls():
    read = renderer().parse((*b"<python>1</python> is <b>", END))
    assert isinstance(read, Action) and read.message.content == "<python>1</python> is <b>"


def test_a_list_of_words_is_refused_rather_than_changed():
    with pytest.raises(ValueError, match="cannot be written compactly"):
        renderer().turn(Message("assistant", "", (call("bash", command=["ls", "-l"]),)))
