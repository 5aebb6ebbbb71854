"""Tool calls in a few characters, for small byte-level models: `<bash>echo 1</bash>`, and no instructions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.arguments import BadArguments, no_constant, unique
from guerdon.runtime.agent.renderer import Codec, TextRenderer
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message, ToolCall


class CompactRenderer(TextRenderer):
    """The Renderer contract with a call as `<name>text</name>`.

    The text is the argument itself where the tool has one parameter, and it takes a string; else it is a JSON object.
    The model is told nothing of its tools: it learns them from demonstrations. Only the tools that `start` was given
    are read as calls; all else is words.
    """

    def __init__(self, codec: Codec | None = None) -> None:
        super().__init__(codec)
        self._single: dict[str, str] = {}
        self._names: set[str] = set()

    def start(self, messages: Sequence[Message], tools: Sequence[ToolPlan]) -> tuple[int, ...]:
        for tool in tools:
            self._names.add(tool.name)
            parameter = _single(tool)
            self._single.pop(tool.name, None)  # the last opening's word on a tool counts
            if parameter:
                self._single[tool.name] = parameter
        return super().start(messages, tools)

    def instructions(self, tools: Sequence[ToolPlan]) -> str:
        return ""

    def write(self, message: Message) -> str:
        """An assistant's message as text. Raises ValueError for a call that could not be read back."""
        calls = [f"<{call.name}>{self._body(call)}</{call.name}>" for call in message.calls]
        return "\n".join([message.content, *calls] if message.content else calls)

    def read(self, text: str) -> Action | Malformed:
        """An assistant's text as words and calls; a known tool's tag without its other end is an error."""
        if not self._names:
            return Action(Message("assistant", text.strip()))
        names = "|".join(sorted(map(re.escape, self._names)))
        calls: list[ToolCall] = []
        errors: list[str] = []
        words: list[str] = []
        last = 0
        for found in re.finditer(rf"<({names})>(.*?)</\1>", text, re.DOTALL):
            words.append(text[last : found.start()])
            last = found.end()
            try:
                calls.append(ToolCall(f"call_{len(calls)}", found[1], self._arguments(found[1], found[2])))
            except BadArguments as wrong:
                errors.append(str(wrong))
        rest = "".join([*words, text[last:]])
        errors += [f"{tag} has no other end" for tag in re.findall(rf"</?(?:{names})>", rest)]
        message = Message("assistant", rest.strip(), tuple(calls))
        return Malformed(message, tuple(errors)) if errors else Action(message)

    def _body(self, call: ToolCall) -> str:
        try:
            given: Any = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            raise ValueError(f"the call of {call.name} cannot be written: its arguments are no JSON") from None
        parameter = self._single.get(call.name)
        text = given.get(parameter) if parameter and isinstance(given, dict) and set(given) <= {parameter} else None
        if given == {} and parameter:
            text = ""
        if text == "" and given:
            raise ValueError(f"the call of {call.name} cannot be written compactly: an empty text is read as none; "
                             f"leave {parameter} out, or use hermes")
        body = text if isinstance(text, str) else json.dumps(given, ensure_ascii=False)
        if f"</{call.name}>" in body or (parameter and not isinstance(text, str)):
            raise ValueError(f"the call of {call.name} cannot be written compactly: {body[:60]!r}; use hermes")
        return body

    def _arguments(self, name: str, body: str) -> str:
        if name in self._single:
            return json.dumps({self._single[name]: body} if body else {}, ensure_ascii=False)
        try:
            value = json.loads(body, object_pairs_hook=unique, parse_constant=no_constant)
        except (ValueError, RecursionError) as wrong:
            raise BadArguments(f"the arguments of {name} are no JSON object: {str(wrong)[:100]}") from None
        if not isinstance(value, dict):
            raise BadArguments(f"the arguments of {name} are no JSON object")
        return json.dumps(value, ensure_ascii=False)


def _single(tool: ToolPlan) -> str | None:
    """The name of a tool's only parameter, where that takes a string."""
    properties: Any = tool.parameters.get("properties", {})
    if len(properties) != 1:
        return None
    ((name, schema),) = properties.items()
    kinds = [schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))]
    return name if "string" in kinds else None
