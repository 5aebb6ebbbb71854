"""A Hugging Face tokenizer with its chat template as a Renderer: the frame is the template's, contents stay text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.codec import instructions, plain, read, write
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message

FRAME_CHARACTERS = 1_000_000
"""What a template may add to the contents; one that adds more is no chat template."""
_MARK = re.compile("\ue000(\\d+)\ue001")
"""Stands for a content in what the template renders: no content is ever read by the template, or as its markers."""


class TemplateRefused(ValueError):
    """The template cannot be used for training; says what it does."""


class ChatRenderer:
    """The Renderer contract over a tokenizer and its template.

    Contents and frames are tokenised apart: text that looks like a marker in an observation stays text. The template
    must leave what it has rendered as it is when messages are added. Raises TemplateRefused.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        if not getattr(tokenizer, "chat_template", None):
            raise TemplateRefused("the tokenizer has no chat template; take renderer=hermes for a base model")
        user, said = Message("user", "u"), Message("assistant", "a")
        self._begun = [user, said]
        after = self._render([user, said]).rpartition("\ue001")[2]
        framed = self._ids(after)
        special = set(tokenizer.all_special_ids)
        self._end = next((i for i in framed if i in special), tokenizer.eos_token_id)
        if self._end is None:
            raise TemplateRefused("the chat template ends an assistant's turn with no special token")
        self._tools = self._knows_tools()
        self._role = self._tool_role()
        self._must_keep_history()

    @property
    def stop(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        return tuple(dict.fromkeys(i for i in (self._end, self._tokenizer.eos_token_id) if i is not None))

    def start(self, messages: Sequence[Message], tools: Sequence[ToolPlan]) -> tuple[int, ...]:
        """The ids of an opening; a template that knows no tools gets them in the system message."""
        opening = list(messages)
        if tools and not self._tools:
            told = instructions(tools)
            if opening and opening[0].role == "system":
                opening[0] = Message("system", f"{opening[0].content}\n\n{told}")
            else:
                opening.insert(0, Message("system", told))
        return self._framed(self._render(opening, tools=tools if self._tools else (), go_on=True), opening)

    def extend(self, ids: Sequence[int], observation: Sequence[Message]) -> tuple[int, ...]:
        """`ids` untouched, the turn closed where the policy did not, the observation, the assistant's opening."""
        messages = [*self._begun, *observation]
        text = self._render(messages, go_on=True)
        mark = f"\ue000{len(self._begun) - 1}\ue001"
        rest = self._framed(text.partition(mark)[2], messages)
        closed = tuple(ids)
        if not closed or closed[-1] not in self.stop:
            closed += (self._end,)
        return closed + (rest[1:] if rest[:1] == (self._end,) else rest)

    def turn(self, message: Message) -> tuple[int, ...]:
        """The ids of an assistant's turn, its end among them."""
        return (*self._content(write(message)), self._end)

    def parse(self, ids: Sequence[int]) -> Action | Malformed:
        """What one turn's sampled ids ask for; a special token inside it is an error."""
        body = ids[:-1] if ids and ids[-1] in self.stop else ids
        special = set(self._tokenizer.all_special_ids)
        errors: tuple[str, ...] = ()
        if special & set(body):
            errors = ("the turn holds a special token, which only the conversation's frame may",)
        parsed = read(self.decode([i for i in body if i not in special]).decode(errors="replace"))
        if isinstance(parsed, Malformed):
            errors += parsed.errors
        return Malformed(parsed.message, errors) if errors else parsed

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text of ids, special tokens left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text.encode(errors="replace")

    # -- the template ------------------------------------------------------------------------------------------------

    def _render(self, messages: Sequence[Message], tools: Sequence[ToolPlan] = (), go_on: bool = False) -> str:
        """The template's text of messages whose contents are marks. Raises TemplateRefused."""
        shown = [
            {"role": self._role if m.role == "tool" else m.role, "content": f"\ue000{i}\ue001"}
            for i, m in enumerate(messages)
        ]
        listed = [
            {"type": "function", "function": {"name": t.name, "description": t.description,
                                              "parameters": plain(t.parameters)}}
            for t in tools
        ]
        try:
            text: str = self._tokenizer.apply_chat_template(
                shown, tools=listed or None, tokenize=False, add_generation_prompt=go_on
            )
        except Exception as wrong:  # a template is a program of somebody else's
            raise TemplateRefused(f"the chat template fails: {str(wrong).splitlines()[0][:200]}") from wrong
        if len(text) > FRAME_CHARACTERS:
            raise TemplateRefused(f"the chat template makes {len(text)} characters of frame")
        return text

    _role = "tool"

    def _knows_tools(self) -> bool:
        probe = ToolPlan("probe", "about", {"type": "object", "properties": {}})
        try:
            return "probe" in self._render(self._begun[:1], tools=(probe,))
        except TemplateRefused:
            return False

    def _tool_role(self) -> str:
        """The role under which a tool's result is shown: `user` where the template does not show `tool`."""
        try:
            shown = self._render([*self._begun, Message("tool", "")])
        except TemplateRefused:
            return "user"
        return "tool" if "\ue0002\ue001" in shown else "user"

    def _must_keep_history(self) -> None:
        """Refuse a template that changes what it has rendered once more is said."""
        short = [*self._begun, Message("tool", "")]
        long = [*short, Message("assistant", ""), Message("user", ""), Message("assistant", "")]
        for count in range(1, len(long)):
            before, after = self._render(long[:count]), self._render(long[: count + 1])
            if not after.startswith(before):
                raise TemplateRefused("the chat template rewrites earlier messages when one is added: a policy would "
                                      "be trained on what it never saw; use a template that only adds")
        if self._thought(2) != self._thought(4):
            raise TemplateRefused("the chat template drops earlier thinking: a policy would be trained on what it "
                                  "never saw; use a template that keeps it")

    def _thought(self, count: int) -> bool:
        """Whether thinking in the first answer is still there in a conversation of `count` messages."""
        shown = [
            {"role": "user", "content": "u"}, {"role": "assistant", "content": "<think>\nsecret\n</think>\n\na"},
            {"role": "user", "content": "v"}, {"role": "assistant", "content": "b"},
        ][:count]
        text: str = self._tokenizer.apply_chat_template(shown, tokenize=False)
        return "secret" in text

    # -- ids ---------------------------------------------------------------------------------------------------------

    def _framed(self, text: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids of a rendered text: frame parts with their markers, contents as plain text in the marks' places."""
        ids: list[int] = []
        last = 0
        for mark in _MARK.finditer(text):
            message = messages[int(mark[1])]
            content = write(message) if message.role == "assistant" else message.content
            ids += self._ids(text[last : mark.start()])
            ids += self._content(content)
            last = mark.end()
        return (*ids, *self._ids(text[last:]))

    def _ids(self, frame: str) -> list[int]:
        found: list[int] = self._tokenizer(frame, add_special_tokens=False)["input_ids"] if frame else []
        return found

    def _content(self, text: str) -> list[int]:
        if not text:
            return []
        clean = text.encode(errors="replace").decode()  # a lone surrogate is no text
        ids: list[int] = self._tokenizer(clean, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if set(ids) & set(self._tokenizer.all_special_ids):
            # Some tokenizers do not know how to split: cut the text at every character of the markers instead.
            ids = [i for part in re.split(r"(?<=[<|>])", clean) if part
                   for i in self._tokenizer(part, add_special_tokens=False)["input_ids"]]
        return ids


def chat_renderer(source: str) -> ChatRenderer:
    """The renderer of a model's folder or GGUF file. Raises ValueError, in one line."""
    try:
        from transformers import AutoTokenizer
    except ImportError as wrong:
        raise ValueError("`chat` needs transformers: pip install 'guerdon[hf]'") from wrong
    path = Path(source)
    where: Mapping[str, Any] = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent if where else path), **where)
    except Exception as wrong:
        raise ValueError(f"no tokenizer can be read from {source}: {str(wrong).splitlines()[0][:200]}") from wrong
    return ChatRenderer(tokenizer)
