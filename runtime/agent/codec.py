"""Tool calls as text, in the manner of Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.arguments import BadArguments, no_constant, unique
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(re.escape(OPEN) + "|" + re.escape(CLOSE))


def instructions(tools: Sequence[ToolPlan]) -> str:
    """The text that tells a model of its tools; empty where it has none."""
    if not tools:
        return ""
    listed = "\n".join(
        json.dumps({"name": t.name, "description": t.description, "parameters": plain(t.parameters)})
        for t in tools
    )
    return (
        "You may call these tools:\n" + listed + "\nTo call one, write\n"
        f'{OPEN}{{"name": "…", "arguments": {{…}}}}{CLOSE}\nSeveral calls in one turn are run in their order.'
    )


def write(message: Message) -> str:
    """An assistant's message as text; arguments that are not JSON are written as they are."""
    calls = [
        f'{OPEN}{{"name": {json.dumps(c.name, ensure_ascii=False)}, "arguments": {c.arguments}}}{CLOSE}'
        for c in message.calls
    ]
    return "\n".join([message.content, *calls] if message.content else calls)


def read(text: str) -> Action | Malformed:
    """An assistant's text as words and calls; what looks like a call and is none becomes an error."""
    words, bodies, errors = _split(text)
    calls: list[ToolCall] = []
    for body in bodies:
        try:
            calls.append(_call(body, len(calls)))
        except BadArguments as wrong:
            errors.append(str(wrong))
    message = Message("assistant", words, tuple(calls))
    return Malformed(message, tuple(errors)) if errors else Action(message)


def _split(text: str) -> tuple[str, list[str], list[str]]:
    words: list[str] = []
    bodies: list[str] = []
    errors: list[str] = []
    start: int | None = None
    last = 0
    for tag in _TAG.finditer(text):
        if tag.group() == OPEN:
            if start is not None:
                errors.append(f"a {OPEN} is opened again before {CLOSE}")
            else:
                words.append(text[last : tag.start()])
            start = tag.end()
        elif start is None:
            errors.append(f"{CLOSE} without {OPEN}")
            words.append(text[last : tag.start()])
        else:
            bodies.append(text[start : tag.start()])
            start = None
        last = tag.end()
    if start is None:
        words.append(text[last:])
    else:
        errors.append(f"a {OPEN} is not closed by {CLOSE}")
    return "".join(words).strip(), bodies, errors


def _call(body: str, index: int) -> ToolCall:
    try:
        value = json.loads(body, object_pairs_hook=unique, parse_constant=no_constant)
    except json.JSONDecodeError as wrong:
        raise BadArguments(f"a tool call is not valid JSON: {wrong.msg} at character {wrong.pos}") from None
    except (RecursionError, ValueError):
        raise BadArguments("a tool call is not valid JSON: nested too deeply or a number too long") from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise BadArguments('a tool call must be an object with a "name" and "arguments"')
    extra = [key for key in value if key not in ("name", "arguments")]
    if extra:
        raise BadArguments(f'a tool call takes "name" and "arguments", not {extra[0]!r}')
    arguments = value.get("arguments", {})
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{index}", value["name"], raw)


def plain(value: Any) -> Any:
    """Read-only mappings and tuples of a plan as what the JSON writer takes."""
    if hasattr(value, "items"):
        return {key: plain(item) for key, item in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value
