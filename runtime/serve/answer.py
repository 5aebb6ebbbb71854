"""A sampled turn as an answer of the Chat Completions protocol, whole or as a stream of events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from guerdon.runtime.contracts.renderer import Malformed, Renderer
from guerdon.runtime.contracts.sampling import Sampled
from guerdon.runtime.contracts.trajectory import Message, ToolCall
from guerdon.runtime.serve.request import ChatRequest

Decode = Callable[[Sequence[int]], bytes]
"""Ids to the bytes of their text; markers of the conversation's frame have none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn, ready to be written: `sampled` is cut where a stop text ended it."""

    name: str
    model: str
    prompt: tuple[int, ...]
    sampled: Sampled
    message: Message
    finish: str


def make_reply(
    request: ChatRequest, prompt: tuple[int, ...], sampled: Sampled,
    *, name: str, model: str, renderer: Renderer,
) -> Reply:
    """What a turn says. Calls that are none (malformed) come as the text that they are, for the client to see."""
    kept, ended = _cut(sampled, request.stop, renderer.decode)
    text = renderer.decode(kept.ids).decode(errors="replace").strip()
    stops = [text.find(stop) for stop in request.stop if stop in text]
    message = Message("assistant", text[: min(stops)].rstrip() if stops else text)
    if request.calls and not stops:
        parsed = renderer.parse(kept.ids)
        if not isinstance(parsed, Malformed):
            calls = (ToolCall(f"{name}-{i}", c.name, c.arguments) for i, c in enumerate(parsed.message.calls))
            message = replace(parsed.message, calls=tuple(calls))
    finish = "tool_calls" if message.calls else "stop" if ended or kept.stopped else "length"
    return Reply(name, model, prompt, kept, message, finish)


def _cut(sampled: Sampled, stops: Sequence[str], decode: Decode) -> tuple[Sampled, bool]:
    """The shortest beginning of a turn that holds a stop text, and whether there is one."""
    texts = [stop.encode() for stop in stops]

    def holds(count: int) -> bool:
        found = decode(sampled.ids[:count])
        return any(text in found for text in texts)

    if not texts or not holds(len(sampled.ids)):
        return sampled, False
    low, high = 0, len(sampled.ids)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Sampled(sampled.ids[:high], sampled.logprobs[:high], sampled.weights_version, True), True


def whole(reply: Reply, request: ChatRequest, decode: Decode) -> dict[str, Any]:
    """The answer as one document."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.message.content or None, "refusal": None}
    if reply.message.calls:
        message["tool_calls"] = _calls(reply.message.calls)
    else:
        message["content"] = reply.message.content
    made = {
        **_head(reply, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish, **_tokens(reply, request, decode)}],
        "usage": _usage(reply),
    }
    return made | ({"prompt_token_ids": list(reply.prompt)} if request.token_ids else {})


def events(reply: Reply, request: ChatRequest, decode: Decode) -> Iterator[bytes]:
    """The answer as server-sent events. Turns are sampled in batches to their end, so the text comes as one."""
    delta: dict[str, Any] = {"role": "assistant", "content": reply.message.content}
    if reply.message.calls:
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(_calls(reply.message.calls))]
    first = {"index": 0, "delta": delta, "finish_reason": None, **_tokens(reply, request, decode)}
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reply.finish}
    extra = {"prompt_token_ids": list(reply.prompt)} if request.token_ids else {}
    head = _head(reply, "chat.completion.chunk")
    yield _event({**head, "choices": [first], **extra})
    yield _event({**head, "choices": [last]})
    if request.usage:
        yield _event({**head, "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    # `created` is no clock: the same request to the same weights gives the same bytes.
    fingerprint = f"weights-{reply.sampled.weights_version}"
    return {"id": reply.name, "object": kind, "created": 0, "model": reply.model, "system_fingerprint": fingerprint}


def _calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def _usage(reply: Reply) -> dict[str, int]:
    prompt, turn = len(reply.prompt), len(reply.sampled.ids)
    return {"prompt_tokens": prompt, "completion_tokens": turn, "total_tokens": prompt + turn}


def _tokens(reply: Reply, request: ChatRequest, decode: Decode) -> dict[str, Any]:
    """Log-probabilities, and ids as vLLM's `return_token_ids` has them."""
    made: dict[str, Any] = {"logprobs": None}
    if request.logprobs:
        pairs = zip(reply.sampled.ids, reply.sampled.logprobs, strict=True)
        made["logprobs"] = {"content": [_logprob(i, x, decode) for i, x in pairs], "refusal": None}
    if request.token_ids:
        made["token_ids"] = list(reply.sampled.ids)
    return made


def _logprob(token: int, logprob: float, decode: Decode) -> dict[str, Any]:
    data = decode((token,))
    # A marker has no text.
    text = data.decode(errors="replace") if data else f"token_id:{token}"
    return {"token": text, "logprob": logprob, "bytes": list(data), "top_logprobs": []}
