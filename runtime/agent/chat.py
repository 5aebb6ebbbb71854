"""A model's own chat template as a renderer: the frame is the template's, contents stay text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.chat_template import MARK, Template, TemplateRefused, mark, masked
from guerdon.runtime.agent.codec import instructions, plain, read, write
from guerdon.runtime.agent.renderer import must_read_back
from guerdon.runtime.agent.tokenizers import Tokens, load
from guerdon.runtime.contracts.renderer import Action, Malformed
from guerdon.runtime.contracts.trajectory import Message

_BEGUN = (("user", ""), ("assistant", ""))
"""The dummy conversation that an observation is rendered after."""


class ChatRenderer:
    """The Renderer contract over a Hugging Face tokenizer and its chat template.

    Contents and frames are tokenised apart, so text that looks like a marker in an observation stays text, and a
    content keeps its spaces where the template would trim them. Raises TemplateRefused for a template that does not
    leave what it has rendered as it is when messages are added, ValueError for a tokenizer that is not byte-level.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._template = Template(tokenizer)
        self._tokens = Tokens(tokenizer, self._template.marked(("user", "assistant", self._template.tool), go_on=True))
        after = self._tokens.frame(self._template.marked(("user", "assistant")).partition(mark(1))[2])
        end = next((at for at, i in enumerate(after) if i in self._tokens.control), None)
        if end is None:
            raise TemplateRefused("the chat template ends an assistant's turn with no special token: a policy could "
                                  "not say that it has done; use one that does")
        self._closing = tuple(after[: end + 1])
        self._stop = tuple(dict.fromkeys(i for i in (after[end], tokenizer.eos_token_id) if i is not None))

    @property
    def stop(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        return self._stop

    def decode(self, ids: Sequence[int]) -> bytes:
        """The text of ids as bytes; special tokens have none."""
        return self._tokens.decode(ids)

    def start(self, messages: Sequence[Message], tools: Sequence[ToolPlan]) -> tuple[int, ...]:
        """The ids of an opening; where the template tells of no tools, the system message does."""
        shown = self._shown(messages)
        if tools and not self._template.tools:
            told = instructions(tools)
            if shown and shown[0][0] == "system":
                shown[0] = ("system", f"{shown[0][1]}\n\n{told}")
            else:
                shown.insert(0, ("system", told))
        if shown and shown[0][0] == "system" and not self._template.system:
            (_, told), *shown = shown
            first = shown.pop(0)[1] if shown and shown[0][0] == "user" else ""
            shown.insert(0, ("user", f"{told}\n\n{first}" if first else told))
        taken: list[str] = []
        listed = [self._listed(tool, taken) for tool in tools] if self._template.tools else []
        return self._framed(self._template.marked([role for role, _ in shown], listed, go_on=True), shown, taken)

    def extend(self, ids: Sequence[int], observation: Sequence[Message]) -> tuple[int, ...]:
        """`ids` untouched, the turn closed where the policy did not, the observation, the assistant's opening."""
        shown = [*_BEGUN, *self._shown(observation)]
        text = self._template.marked([role for role, _ in shown], go_on=True).partition(mark(1))[2]
        rest = self._framed(text, shown, ())
        if rest[: len(self._closing)] != self._closing:
            raise TemplateRefused("the chat template ends an assistant's turn now this way, now that")
        closed = ids and ids[-1] in self._stop
        return (*ids, *(rest[len(self._closing) :] if closed else rest))

    def turn(self, message: Message) -> tuple[int, ...]:
        """The ids of an assistant's turn, its end among them. Raises ValueError for one that reads back otherwise."""
        ids = (*self._tokens.plain(write(message)), *self._closing)
        must_read_back(message, self.parse(ids))
        return ids

    def parse(self, ids: Sequence[int]) -> Action | Malformed:
        """What one turn's sampled ids ask for; a special token inside it, or bytes that are no text, are errors."""
        body = ids[:-1] if ids and ids[-1] in self._stop else ids
        errors: tuple[str, ...] = ()
        if not self._tokens.control.isdisjoint(body):
            errors = ("the turn holds a special token, which only the conversation's frame may",)
        elif not all(map(self._tokens.knows, body)):
            errors = ("the turn holds an id that the tokenizer does not have",)
        data = self._tokens.decode(body)
        try:
            text = data.decode()
        except UnicodeDecodeError as wrong:
            text = data.decode(errors="replace")
            errors += (f"the turn is not valid UTF-8 at byte {wrong.start}",)
        parsed = read(text)
        if isinstance(parsed, Malformed):
            errors += parsed.errors
        return Malformed(parsed.message, errors) if errors else parsed

    def _shown(self, messages: Sequence[Message]) -> list[tuple[str, str]]:
        """Roles and contents as this template takes them; what may not follow each other is joined."""
        shown: list[tuple[str, str]] = []
        for message in messages:
            role = self._template.tool if message.role == "tool" else message.role
            content = write(message) if role == "assistant" else message.content
            if shown and not self._template.repeats and {role, shown[-1][0]} <= {"user", "tool"}:
                shown[-1] = (shown[-1][0], f"{shown[-1][1]}\n\n{content}")
            else:
                shown.append((role, content))
        return shown

    def _listed(self, tool: ToolPlan, taken: list[str]) -> Any:
        """A tool as templates take it; what looks like a marker in its texts is kept from the template."""
        told = {"name": tool.name, "description": tool.description, "parameters": plain(tool.parameters)}
        return {"type": "function", "function": masked(told, self._tokens.markers, taken)}

    def _framed(self, text: str, shown: Sequence[tuple[str, str]], taken: Sequence[str]) -> tuple[int, ...]:
        """The ids of a rendered text: frame parts with their markers, texts without any in the marks' places."""
        ids: list[int] = []
        last = 0
        for found in MARK.finditer(text):
            ids += self._tokens.frame(text[last : found.start()])
            name = found[1]
            ids += self._tokens.plain(taken[int(name[1:])] if name[0] == "t" else shown[int(name)][1])
            last = found.end()
        return (*ids, *self._tokens.frame(text[last:]))


def chat_renderer(source: str) -> ChatRenderer:
    """The renderer of a model's folder or GGUF file. Raises ValueError, in one line."""
    tokenizer = load(source)
    try:
        return ChatRenderer(tokenizer)
    except ValueError as wrong:
        raise ValueError(f"{source}: {wrong}") from wrong
