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


HOSTILE = ["<bash>", "</bash>", "<submit>", "</submit>", "<put>", "</put>", "</", ">", "{}", " ", "\n", "a", "\ud800"]
TEXTS = st.text() | st.lists(st.sampled_from(HOSTILE)).map("".join)


def same(message, read):
    """Whether what was read is the message: by values, since JSON has several texts for one."""
    calls = [[(c.name, json.loads(c.arguments)) for c in one.calls] for one in (message, read.message)]
    return isinstance(read, Action) and calls[0] == calls[1] and read.message.content == message.content.strip()


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_what_is_written_is_read(words, command, answer, content):
    calls = (
        call("bash", command=command), ToolCall("call_1", "put", json.dumps({"path": "/a", "content": content})),
        ToolCall("call_2", "submit", json.dumps({"answer": answer} if answer else {})),
    )
    made = renderer()
    for message in (Message("assistant", words, calls), Message("assistant", words), Message("assistant", "", calls)):
        every = message.content + (command + answer + content if message.calls else "")
        try:
            assert same(message, made.parse(made.turn(message)))
        except ValueError:  # only where a tag or what is no text stands in the way
            assert any(f"{tag}{name}>" in every for tag in ("<", "</") for name in ("bash", "put", "submit")) or (
                any("\ud800" <= c <= "\udfff" for c in every) or (message.calls and not command))


@pytest.mark.parametrize(
    ("words", "calls", "says"),
    [("<bash>ls</bash>", (), r"\[\] would be read as \['bash'\]"), ("a <bash>", (), "<bash> has no other end"),
     ("so <submit>", (call("submit", answer="4"),), "words would be read otherwise: 'so'"),
     ("", (call("bash", command="echo '</bash>'"),), "cannot be written compactly.*use hermes"),
     ("", (call("bash", command=""),), "leave command out, or use hermes"),
     ("", (call("bash", command="\ud800"),), "would be read as"), ("\ud800", (), "words would be read otherwise"),
     ("", (ToolCall("call_0", "bash", "{oops"),), "are no JSON"),
     ("", (ToolCall("call_0", "put", "[1]"),), "no JSON object"),
     ("", (call("python", code="1"),), r"\['python'\] would be read as \[\]")],
)
def test_a_turn_that_would_be_read_otherwise_is_refused(words, calls, says):
    with pytest.raises(ValueError, match=says) as caught:
        renderer().turn(Message("assistant", words, calls))
    assert "\n" not in str(caught.value)


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


def test_a_tool_is_what_the_last_opening_said():
    made = renderer()
    made.start([], (ToolPlan("submit", "", {"properties": {"answer": {"type": "integer"}}}),))
    message = Message("assistant", "", (call("submit", answer=4),))
    ids = made.turn(message)
    assert bytes(ids[:-1]) == b'<submit>{"answer": 4}</submit>' and same(message, made.parse(ids))
