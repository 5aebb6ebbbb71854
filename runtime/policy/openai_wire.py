"""The Chat Completions protocol: messages and tools as JSON, a server's answer (never trusted) as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.contracts.renderer import ToolText
from guerdon.runtime.contracts.trajectory import Message, ToolCall

_MOST = 10**9
"""No honest count of tokens is larger."""


class Unreadable(Exception):
    """The answer is none of the protocol; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One turn as the server gave it. `ids`, `logprobs` and `prompt` (its ids) are None where it gave none."""

    message: Message
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    prompt: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens by the server's own word: of the turn, and of prompt and turn together; None where it does not say."""

    turn: int | None
    total: int | None


def functions(tools: Sequence[ToolPlan]) -> list[dict[str, Any]]:
    """Tools as `tools` of a request."""
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": plain(t.parameters)},
        }
        for t in tools
    ]


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as `messages` of a request, calls beside words."""
    return [_native(message) for message in messages]


def conversation_as_text(
    messages: Sequence[Message], tools: Sequence[ToolPlan], text: ToolText
) -> list[dict[str, Any]]:
    """The same with tools told in the system's message, calls in the assistant's words, and results as Hermes has
    them: a server that knows nothing of tools would refuse the role `tool`."""
    told = text.instructions(tools)
    made = [{"role": "system", "content": clean(told)}] if told else []
    for message in messages:
        if message.role == "assistant":
            made.append({"role": "assistant", "content": clean(text.write(message))})
        elif message.role == "tool":
            made.append({"role": "user", "content": clean(f"<tool_response>\n{message.content}\n</tool_response>")})
        else:
            made.append({"role": message.role, "content": clean(message.content)})
    return made


def _native(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": clean(message.content)}
    if message.calls:
        made["content"] = made["content"] or None
        made["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _sendable(c.arguments)}}
            for c in message.calls
        ]
    if message.role == "tool":
        made["tool_call_id"] = message.call_id
    return made


def _sendable(arguments: str) -> str:
    """Arguments as they were if they are an object. Servers read them again, and fail on what a model got wrong;
    the tool's own answer, which follows, says what that was."""
    try:
        if isinstance(json.loads(arguments), dict):
            return clean(arguments)
    except (ValueError, RecursionError):
        pass
    return json.dumps({"malformed": clean(arguments)}, ensure_ascii=False)


def clean(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes `?`."""
    return text.encode(errors="replace").decode()


def plain(value: Any) -> Any:
    """Read-only mappings and tuples of a plan as what the JSON writer takes."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def read_json(body: bytes) -> Mapping[str, Any]:
    """The body of an answer. Raises Unreadable."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable(f"its answer is not JSON but begins with {body[:60]!r}") from None
    if not isinstance(document, dict):
        raise Unreadable("its answer is JSON, but no object")
    return document


def read_usage(document: Mapping[str, Any]) -> Usage:
    """What the answer says it cost."""
    usage = document.get("usage")
    found = usage if isinstance(usage, dict) else {}

    def count(name: str) -> int | None:
        value = found.get(name)
        return value if type(value) is int and 0 <= value <= _MOST else None

    turn, prompt, total = count("completion_tokens"), count("prompt_tokens"), count("total_tokens")
    if total is None and turn is not None and prompt is not None:
        total = turn + prompt
    return Usage(turn, total)


def read_answer(document: Mapping[str, Any], hide: Callable[[str], str] = str) -> Answer:
    """The one choice of an answer; `hide` takes out of its texts what must be written nowhere. Raises Unreadable."""
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Unreadable("its answer has no choices[0].message")
    content, refusal = message.get("content"), message.get("refusal")
    if content is not None and not isinstance(content, str):
        raise Unreadable("the content of its answer is no text")
    words = content or (refusal if isinstance(refusal, str) else "")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise Unreadable("the tool_calls of its answer are no list")
    made = _distinct([_call(call, i, hide) for i, call in enumerate(calls)])
    ids = _ids(choice.get("token_ids"), "token_ids")
    prompt = _ids(document.get("prompt_token_ids", choice.get("prompt_token_ids")), "prompt_token_ids")
    logprobs = _logprobs(choice.get("logprobs"))
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        raise Unreadable(f"its answer has {len(ids)} token_ids and {len(logprobs)} logprobs")
    return Answer(Message("assistant", hide(clean(words)), made), ids, logprobs, prompt)


def _call(call: Any, index: int, hide: Callable[[str], str]) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise Unreadable(f"tool_calls[{index}] of its answer has no function with a name")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # some servers send the object itself
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str | None):
        raise Unreadable(f"the arguments of tool_calls[{index}] of its answer are no text")
    identity = call.get("id")
    named = clean(identity) if isinstance(identity, str) and 0 < len(identity) <= 256 else f"call_{index}"
    return ToolCall(hide(named), hide(clean(name)), hide(clean(arguments or "{}")))


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls with ids that tell them apart, for the results are tied to them."""
    if len({call.id for call in calls}) == len(calls):
        return tuple(calls)
    return tuple(ToolCall(f"call_{i}", call.name, call.arguments) for i, call in enumerate(calls))


def _ids(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(i) is int and 0 <= i < _MOST for i in value):
        raise Unreadable(f"the {name} of its answer are no list of ids")
    return tuple(value)


def _logprobs(value: Any) -> tuple[float, ...] | None:
    content = value.get("content") if isinstance(value, dict) else None
    if content is None:
        return None
    if not isinstance(content, list):
        raise Unreadable("the logprobs of its answer are no list")
    found: list[float] = []
    for entry in content:
        value = entry.get("logprob") if isinstance(entry, dict) else None
        if type(value) not in (int, float) or not math.isfinite(value):
            raise Unreadable("a logprob of its answer is no number")
        found.append(float(value))
    return tuple(found)
