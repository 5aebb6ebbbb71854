"""A request of the Chat Completions protocol, read from JSON that may be anything."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.contracts.trajectory import Message, Role, ToolCall
from guerdon.runtime.serve.errors import Refused

MOST_STOPS, MOST_DEPTH = 16, 100
_ROLES: Mapping[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}
_IGNORED = frozenset({
    "metadata", "store", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
})
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,), "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},), "top_logprobs": (0,),
    "parallel_tool_calls": (True,), "tool_choice": ("auto", "none"), "response_format": ({"type": "text"},),
}
"""Parameters that are taken only with values that change nothing."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a client asks for. `max_tokens` and `seed` are None where it leaves them to the server."""

    messages: tuple[Message, ...]
    tools: tuple[ToolPlan, ...] = ()
    calls: bool = True
    """Whether calls in the text are given as calls."""
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False
    token_ids: bool = False
    stream: bool = False
    usage: bool = False
    """Whether a stream ends with what it cost."""
    user: str = ""


def read_request(body: bytes, model: str) -> ChatRequest:
    """Read a body. Raises Refused."""
    try:
        document = _clean(json.loads(body))
    except (ValueError, RecursionError) as wrong:
        raise Refused(f"the body is not JSON: {wrong}"[:200]) from None
    if not isinstance(document, dict):
        raise Refused("the body must be an object such as {\"model\": …, \"messages\": […]}")
    given = {key: value for key, value in document.items() if value is not None}
    if given.get("model") != model:
        raise Refused(f"there is no model {str(given.get('model'))[:100]!r} here; it is {model!r}", 404, "model",
                      "model_not_found")
    _check_known(given)
    tools = tuple(_tool(tool, i) for i, tool in enumerate(_list(given, "tools")))
    return ChatRequest(
        messages=_messages(given), tools=tools, calls=bool(tools) and given.get("tool_choice") != "none",
        max_tokens=_whole(given, "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens", 1),
        temperature=_number(given, "temperature", lambda x: 0 <= x <= 100, "0 to 100"),
        top_p=_number(given, "top_p", lambda x: 0 < x <= 1, "above 0 and at most 1"),
        stop=_stop(given.get("stop", [])), seed=_whole(given, "seed", -(2**63)),
        logprobs=_flag(given, "logprobs"), token_ids=_flag(given, "return_token_ids"),
        stream=_flag(given, "stream"), usage=_usage(given), user=_user(given),
    )


def _clean(value: Any, depth: int = 0) -> Any:
    """The document with text that every tokenizer takes: a lone surrogate becomes `?`."""
    if depth > MOST_DEPTH:
        raise ValueError(f"nested more than {MOST_DEPTH} deep")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_clean(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item, depth + 1) for key, item in value.items()}
    return value


def _check_known(given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if key in _NEUTRAL:
            # `1 == True`, and 0 == False: of those only the number is meant.
            if value not in _NEUTRAL[key] or (key != "parallel_tool_calls" and isinstance(value, bool)):
                wanted = " or ".join(map(repr, _NEUTRAL[key]))
                raise Refused(f"{key} must be {wanted}: nothing else is supported here", param=key)
        elif key not in _IGNORED and key not in _READ:
            raise Refused(f"the parameter {key[:100]!r} is not supported here; leave it out", param=key[:100])


_READ = frozenset({
    "model", "messages", "tools", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed",
    "logprobs", "return_token_ids", "stream", "stream_options",
})


def _messages(given: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = tuple(_message(item, f"messages[{i}]") for i, item in enumerate(_list(given, "messages")))
    if not messages:
        raise Refused("messages must hold one message at least", param="messages")
    if messages[-1].role == "assistant":
        raise Refused("the last message must not be the assistant's: turns are not gone on with", param="messages")
    return messages


def _message(item: Any, where: str) -> Message:
    role = _ROLES.get(str(item.get("role"))) if isinstance(item, dict) else None
    if role is None:
        raise Refused(f"{where} must have a role: {', '.join(_ROLES)}", param=where)
    content = _content(item.get("content"), f"{where}.content", role == "assistant")
    calls = item.get("tool_calls") or []
    if not isinstance(calls, list) or (calls and role != "assistant"):
        raise Refused(f"{where}.tool_calls must be a list, of an assistant's message", param=where)
    call_id = item.get("tool_call_id", "") if role == "tool" else ""
    if not isinstance(call_id, str) or (role == "tool" and not call_id):
        raise Refused(f"{where} must have the tool_call_id that it answers", param=where)
    made = tuple(_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls))
    return Message(role, content, made, call_id)


def _content(value: Any, where: str, may_miss: bool) -> str:
    if value is None and may_miss:
        return ""
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in value]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "".join(texts)
    if not isinstance(value, str):
        raise Refused(f"{where} must be text: nothing else can be shown to this model", param=where)
    return value


def _call(call: Any, where: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    texts = (call.get("id"), function.get("name"), function.get("arguments")) if isinstance(function, dict) else ()
    found = [text for text in texts if isinstance(text, str)]
    if len(found) != 3:
        raise Refused(f"{where} must have id and function with name and arguments, all of them text", param=where)
    return ToolCall(*found)


def _tool(tool: Any, index: int) -> ToolPlan:
    where = f"tools[{index}]"
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise Refused(f"{where} must be of type function and have function.name", param=where)
    about, parameters = function.get("description") or "", function.get("parameters") or {}
    if not isinstance(about, str) or not isinstance(parameters, dict):
        raise Refused(f"{where}: description must be text and parameters a JSON schema", param=where)
    return ToolPlan(function["name"], about, parameters)


def _list(given: Mapping[str, Any], key: str) -> list[Any]:
    value = given.get(key, [])
    if not isinstance(value, list):
        raise Refused(f"{key} must be a list", param=key)
    return value


def _number(given: Mapping[str, Any], key: str, fits: Callable[[float], bool], wanted: str) -> float:
    value = given.get(key, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not fits(value):
        raise Refused(f"{key} must be {wanted}", param=key)
    return float(value)


def _whole(given: Mapping[str, Any], key: str, least: int) -> int | None:
    value = given.get(key)
    if value is not None and (type(value) is not int or not least <= value < 2**63):
        raise Refused(f"{key} must be a whole number of {least} or more", param=key)
    return value


def _flag(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise Refused(f"{key} must be true or false", param=key)
    return value


def _stop(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    fine = isinstance(texts, list) and all(isinstance(text, str) and text for text in texts)
    if not fine or len(texts) > MOST_STOPS:
        raise Refused(f"stop must be a text, or a list of at most {MOST_STOPS} of them, none empty", param="stop")
    return tuple(texts)


def _usage(given: Mapping[str, Any]) -> bool:
    options = given.get("stream_options", {})
    if not isinstance(options, dict) or ("stream_options" in given and not given.get("stream")):
        raise Refused("stream_options must be an object, of a request with stream=true", param="stream_options")
    return _flag(options, "include_usage")


def _user(given: Mapping[str, Any]) -> str:
    value = given.get("user", "")
    if not isinstance(value, str) or len(value) > 256:
        raise Refused("user must be a text of at most 256 characters", param="user")
    return value
