"""A chat template, which is a program of somebody else's: rendered in transformers' sandbox, and what it can do."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from guerdon.runtime.agent.codec import OPEN
from guerdon.runtime.agent.tokenizers import first_line

FRAME_CHARACTERS = 1_000_000
"""What a template may render; one that renders more is no chat template."""
MARK = re.compile("\ue000(t?\\d+)\ue001")
"""Stands for a text in what the template renders: no content is ever read by the template, or as its markers."""
_CALL = re.compile(re.escape(OPEN) + r'\s*\{\s*"name"')
"""How a template shows calls that can be read here; others have the same tag around another form."""
_TODAY = datetime.datetime(2024, 7, 26, tzinfo=datetime.UTC)
"""What a template is told when it asks for the date: same input, same bytes. The day Llama 3's templates name."""
PROBE = {"type": "function", "function": {"name": "probe", "description": "about",
                                          "parameters": {"type": "object", "properties": {}}}}
Shown = Sequence[tuple[str, str]]
"""Messages as (role, content)."""


class TemplateRefused(ValueError):
    """The template cannot be used for training; says what it does."""


def mark(index: int | str) -> str:
    """The mark of the message at an index, or of a text in the tools."""
    return f"\ue000{index}\ue001"


class Template:
    """Renders conversations, and says what its template knows. Raises TemplateRefused for one that cannot be used."""

    def __init__(self, tokenizer: Any) -> None:
        try:
            text = tokenizer.get_chat_template() if getattr(tokenizer, "chat_template", None) else None
        except ValueError as wrong:
            raise TemplateRefused(f"the tokenizer has no chat template by default: {first_line(wrong)}") from wrong
        if not text:
            raise TemplateRefused("the tokenizer has no chat template; only an instruction-tuned model has one")
        self._given = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if name[-5:] == "token"}
        self._compiled = _compiled(text)
        self.system = self._shows(("system", "user"))
        self.tool = "tool" if self._shows(("user", "assistant", "tool")) else "user"
        """The role of a tool's result: `user` where the template does not show `tool`."""
        self.repeats = self._shows(("user", "assistant", self.tool, self.tool)) and self._shows(
            ("user", "assistant", self.tool, "user"))
        """Whether a tool's or the user's messages may follow each other."""
        self.tools = self._knows_tools()
        """Whether it tells a model of tools, and of calls as this project reads them."""
        self._must_keep_history()

    def render(self, messages: Shown, tools: Sequence[Any] = (), go_on: bool = False) -> str:
        """The text of messages. Raises TemplateRefused."""
        parts: list[str] = []
        size = 0
        try:
            for part in self._compiled.generate(
                messages=[{"role": role, "content": content} for role, content in messages],
                tools=list(tools) or None, documents=None, add_generation_prompt=go_on,
                strftime_now=_TODAY.strftime, **self._given,
            ):
                parts.append(part)
                size += len(part)
                if size > FRAME_CHARACTERS:
                    break
        except Exception as wrong:
            raise TemplateRefused(f"the chat template fails: {first_line(wrong)}") from wrong
        if size > FRAME_CHARACTERS:
            raise TemplateRefused(f"the chat template makes over {FRAME_CHARACTERS} characters of frame")
        return "".join(parts)

    def marked(self, roles: Sequence[str], tools: Sequence[Any] = (), go_on: bool = False) -> str:
        """The text of messages whose contents are marks, each of which is there once and in its place."""
        text = self.render([(role, mark(i)) for i, role in enumerate(roles)], tools, go_on)
        if [found[1] for found in MARK.finditer(text) if found[1][0] != "t"] != [str(i) for i in range(len(roles))]:
            raise TemplateRefused(f"the chat template does not show each message once: {', '.join(roles)}")
        return text

    def _shows(self, roles: Sequence[str]) -> bool:
        try:
            self.marked(roles, go_on=True)
        except TemplateRefused:
            return False
        return True

    def _knows_tools(self) -> bool:
        try:
            text = self.marked(["system", "user"] if self.system else ["user"], (PROBE,), go_on=True)
        except TemplateRefused:
            return False
        return "probe" in text and _CALL.search(text) is not None

    def _must_keep_history(self) -> None:
        """Refuse a template that changes what it has rendered once more is said."""
        roles = ["user", "assistant", self.tool, "assistant", "user", "assistant"]
        for count in range(1, len(roles)):
            after = self.marked(roles[: count + 1])
            said = roles[count] == "assistant"  # what the policy goes on from is what is shown before its words
            if not (after.startswith(self.marked(roles[:count])) and
                    (not said or after.startswith(self.marked(roles[:count], go_on=True)))):
                raise TemplateRefused("the chat template rewrites earlier messages when one is added: a policy would "
                                      "be trained on what it never saw; use a template that only adds")
        thought = "<think>\nsecret\n</think>\n\na"
        shown = [("user", "u"), ("assistant", thought), (self.tool, "t"), ("assistant", "b"), ("user", "v"),
                 ("assistant", "c")]
        if not all("secret" in self.render(shown[:count]) for count in (2, 4, 6)):
            raise TemplateRefused("the chat template drops earlier thinking: a policy would be trained on what it "
                                  "never saw; use a template that keeps it")


def _compiled(text: str) -> Any:
    """The template in transformers' sandbox, where a text cannot be multiplied without bound, nor chance be asked."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        # The environment is that of an empty template: compiling works out constants, which is where bounds must hold.
        sandbox = _compile_jinja_template("").environment.overlay()
        sandbox.intercepted_binops = frozenset(("*", "**"))
        sandbox.binop_table = {**sandbox.binop_table, "*": _times, "**": _power}
        # Both draw from a generator that nobody seeds: same input, same bytes.
        sandbox.filters = {name: one for name, one in sandbox.filters.items() if name != "random"}
        sandbox.globals = {name: one for name, one in sandbox.globals.items() if name != "lipsum"}
        return sandbox.from_string(text)
    except Exception as wrong:
        raise TemplateRefused(f"the chat template cannot be read: {first_line(wrong)}") from wrong


def _times(left: Any, right: Any) -> Any:
    for one, other in ((left, right), (right, left)):
        if hasattr(one, "__len__") and isinstance(other, int) and len(one) * other > FRAME_CHARACTERS:
            raise ValueError("a text or list is multiplied without bound")
    return left * right


def _power(left: Any, right: Any) -> Any:
    raise ValueError(f"{left!r:.20} ** {right!r:.20}: no chat template needs powers")


def masked(value: Any, markers: re.Pattern[str], taken: list[str]) -> Any:
    """A JSON value in which a mark stands for what looks like a marker; `taken` gets the texts, in the marks' order."""

    def hide(found: re.Match[str]) -> str:
        taken.append(found.group())
        return mark(f"t{len(taken) - 1}")

    if isinstance(value, str):
        return re.sub(f"[\ue000\ue001]|{markers.pattern}", hide, value)
    if isinstance(value, Mapping):
        return {masked(key, markers, taken): masked(item, markers, taken) for key, item in value.items()}
    return [masked(item, markers, taken) for item in value] if isinstance(value, list | tuple) else value
