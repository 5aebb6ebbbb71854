"""Raw argument text against a tool's schema: what is taken, what is refused, and that the refusal can be acted on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.runtime.agent.arguments import BadArguments, canonical, parse

BASH = {
    "type": "object",
    "properties": {
        "command": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "times": {"type": "integer"},
        "quiet": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"]},
    },
    "required": ["command"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "raw",
    [
        '{"command": "ls"}',
        '{"command": ["ls", "-l"]}',
        '{"command": []}',
        '{"command": "ls", "times": 3, "quiet": true, "mode": "b"}',
        '{"command": "\\ud83d\\ude00"}',
    ],
)
def test_takes_what_the_schema_allows(raw):
    assert parse(raw, BASH) == json.loads(raw)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"command": "ls"} x', "not valid JSON"),
        ("[]", "must be a JSON object, not an array"),
        ("null", "must be a JSON object, not null"),
        ("{}", "must have 'command'"),
        ('{"command": 3}', "a string or an array of strings, not an integer"),
        ('{"command": ["ls", 3]}', "a string or an array of strings, not an array"),
        ('{"command": "ls", "tims": 3}', "no 'tims'; it takes 'command', 'times'"),
        ('{"command": "ls", "command": "rm"}', "'command' is given twice"),
        ('{"command": "ls", "times": NaN}', "NaN is not valid JSON"),
        ('{"command": "ls", "times": -Infinity}', "-Infinity is not valid JSON"),
        ('{"command": "ls", "times": true}', "'times' must be an integer, not a boolean"),
        ('{"command": "ls", "times": 1.0}', "'times' must be an integer, not a number"),
        ('{"command": "ls", "quiet": 1}', "'quiet' must be a boolean, not an integer"),
        ('{"command": "ls", "mode": "c"}', "one of 'a', 'b', not 'c'"),
        ('{"command": "\\ud800"}', "half of a surrogate pair"),
        ('{"command": "\ud800"}', "not valid UTF-8"),
        ('{"command": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"times": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"command": "' + "x" * (4 * 1024 * 1024) + '"}', "over the limit"),
    ],
)
def test_refuses_with_a_readable_error(raw, says):
    with pytest.raises(BadArguments) as refused:
        parse(raw, BASH)
    assert says in str(refused.value)


@given(st.text())
def test_no_text_raises_anything_but_bad_arguments(raw):
    try:
        value = parse(raw, BASH)
    except BadArguments:
        return
    assert isinstance(value["command"], str | list)


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text()) | st.integers() | st.booleans()))
def test_canonical_ignores_key_order_and_nothing_else(arguments):
    turned = dict(reversed(arguments.items()))
    assert canonical(turned) == canonical(arguments)
    assert json.loads(canonical(arguments)) == arguments
