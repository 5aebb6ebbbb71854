"""The renderer's conformance: ids sampled are kept, observations forge nothing, any text parses to an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.codec import write
from guerdon.runtime.agent.renderer import ByteCodec, TextRenderer
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message, ToolCall

BASH = ToolPlan("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


class ToyCodec:
    """Bytes, and id 300 for `ab`: one text, two id sequences. Its `encode` always prefers 300."""

    markers = {"system": 400, "user": 401, "assistant": 402, "tool": 403, "end": 404}

    def encode(self, text):
        ids, data, at = [], text.encode(errors="replace"), 0
        while at < len(data):
            pair = data[at : at + 2] == b"ab"
            ids.append(300 if pair else data[at])
            at += 2 if pair else 1
        return tuple(ids)

    def decode(self, ids):
        return b"".join(b"ab" if i == 300 else bytes([i]) for i in ids if i < 256 or i == 300)


@pytest.fixture(params=[ByteCodec, ToyCodec], ids=["bytes", "toy"])
def codec(request):
    return request.param()


def test_what_was_sampled_is_never_tokenised_again():
    renderer = TextRenderer(ToyCodec())
    opening = renderer.start([Message("user", "say ab")], [])
    for sampled in [(300, 404), (97, 98, 404), (97, 98)]:
        assert renderer.parse(sampled) == Action(Message("assistant", "ab"))
        extended = renderer.extend(opening + sampled, [Message("tool", "ab")])
        assert extended[: len(opening) + len(sampled)] == opening + sampled
        words = len(opening) + sum(i != 404 for i in sampled)
        assert extended[words:] == (404, 403, 300, 404, 402)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
arguments = st.dictionaries(texts, texts | st.integers(), max_size=3)


@given(st.lists(st.binary(max_size=40), max_size=4), st.data())
def test_extend_keeps_every_id_before_it(outputs, data):
    for codec in (ByteCodec(), ToyCodec()):
        renderer = TextRenderer(codec)
        ids = renderer.start([Message("user", "x")], [BASH])
        for output in outputs:
            ids += tuple(data.draw(st.lists(st.integers(0, 255), max_size=10)))
            longer = renderer.extend(ids, [Message("tool", output.decode(errors="replace"))])
            assert longer[: len(ids)] == ids
            assert longer[-1] == codec.markers["assistant"]
            ids = longer


@given(st.text())
def test_no_observation_forges_a_role(text):
    for codec in (ByteCodec(), ToyCodec()):
        added = TextRenderer(codec).extend((), [Message("tool", text)])
        marks = [i for i in added if i in codec.markers.values()]
        m = codec.markers
        assert marks == [m["end"], m["tool"], m["end"], m["assistant"]]


@given(texts.map(str.strip).filter(lambda t: "tool_call>" not in t), st.lists(st.tuples(texts, arguments), max_size=3))
def test_what_is_written_is_read_again(words, calls):
    import json

    made = tuple(
        ToolCall(f"call_{i}", name, json.dumps(given_, ensure_ascii=False)) for i, (name, given_) in enumerate(calls)
        if "tool_call>" not in name + json.dumps(given_, ensure_ascii=False)
    )
    made = tuple(ToolCall(f"call_{i}", c.name, c.arguments) for i, c in enumerate(made))
    message = Message("assistant", words, made)
    renderer = TextRenderer()
    parsed = renderer.parse(ByteCodec().encode(write(message)))
    assert parsed == Action(message)


def test_several_calls_and_words(codec):
    text = 'one <tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call> two ' \
           '<tool_call>{"name": "submit"}</tool_call>'
    parsed = TextRenderer(codec).parse(codec.encode(text))
    assert isinstance(parsed, Action)
    assert parsed.message.content == "one  two"
    assert [(c.name, c.arguments) for c in parsed.message.calls] == [("bash", '{"command": "ls"}'), ("submit", "{}")]


@pytest.mark.parametrize(
    ("text", "says", "calls"),
    [
        ('<tool_call>{"name": "bash", "arguments": {"command": }}</tool_call>', "not valid JSON", 0),
        ('<tool_call>{"name": "bash"', "is not closed", 0),
        ('</tool_call>', "without <tool_call>", 0),
        ('<tool_call><tool_call>{"name": "bash"}</tool_call>', "opened again", 1),
        ('<tool_call>["bash"]</tool_call>', 'with a "name"', 0),
        ('<tool_call>{"name": 3}</tool_call>', 'with a "name"', 0),
        ('<tool_call>{"name": "a", "name": "b"}</tool_call>', "given twice", 0),
        ('<tool_call>{"name": "a", "args": {}}</tool_call>', "not 'args'", 0),
        ('<tool_call>' + "[" * 100_000 + '</tool_call>', "nested too deeply", 0),
        ('<tool_call>{"name": "ok"}</tool_call><tool_call>x</tool_call>', "not valid JSON", 1),
    ],
)
def test_what_is_no_call_is_told(text, says, calls):
    parsed = TextRenderer().parse(ByteCodec().encode(text))
    assert isinstance(parsed, Malformed)
    assert says in parsed.errors[0]
    assert len(parsed.message.calls) == calls


def test_markers_and_broken_bytes_in_a_turn_are_malformed():
    renderer = TextRenderer()
    forged = renderer.parse((*b"hi", 259, *b"root says", 260, 260))
    assert isinstance(forged, Malformed) and "role marker" in forged.errors[0]
    broken = renderer.parse((0xC3, 0x28, 260))
    assert isinstance(broken, Malformed) and "UTF-8 at byte 0" in broken.errors[0]


@given(st.lists(st.integers(0, 260), max_size=200))
def test_any_ids_parse(ids):
    assert isinstance(TextRenderer().parse(ids), Action | Malformed)


def test_tools_are_told_in_the_opening():
    ids = TextRenderer().start([Message("user", "go")], [BASH])
    text = ByteCodec().decode(ids).decode()
    assert '"name": "bash"' in text and "Run a command." in text and text.endswith("go")
