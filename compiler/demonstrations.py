"""Demonstrations: the tool calls of a `solution` or an `exploit`, resolved for a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from guerdon.compiler.environments import absolute
from guerdon.compiler.plan.canonical import Json
from guerdon.compiler.plan.schema import StepPlan, ToolPlan
from guerdon.compiler.static import Static, asset_of
from guerdon.compiler.types import Type
from guerdon.compiler.values import Val, to_setting
from guerdon.dsl.diagnostic import error
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Expr, Item, Str


@dataclass
class Steps:
    """Reads step blocks; `written` gathers the paths that they put files to."""

    static: Static
    tools: tuple[ToolPlan, ...]
    tools_are_known: bool = True
    """Otherwise something is wrong with the task's tools, which was reported: a missing one is no second error."""
    written: list[str] = field(default_factory=list)

    def read(self, block: Item | None) -> tuple[StepPlan, ...]:
        """The steps of a block, in order; bad ones are reported."""
        steps = []
        for item in (block.body or ()) if block else ():
            step = {"put": self._put, "call": self._call, "say": self._say}[item.word.text](item)
            if step is not None:
                steps.append(step)
        return tuple(steps)

    def _put(self, item: Item) -> StepPlan | None:
        path = item.args[0].value if item.args and len(item.args) == 1 else None
        source, text = item.find("from"), item.find("text")
        if path is None or (source is None) == (text is None):
            self._wrong(item, 'put("/path") { from = file("…") }` or `put("/path") { text = "…" }')
            return None
        where = self.static.value(path)
        if where.broken or not isinstance(where.data, str) or not absolute(where.data, path, self.static):
            return None
        self.written.append(where.data)
        if text is not None and text.value is not None:
            value = self.static.value(text.value)
            if value.broken or not isinstance(value.data, str):
                return None
            return StepPlan("put", path=where.data, content={"text": value.data})
        assert source is not None and source.value is not None
        address = asset_of(self.static, self.static.value(source.value, Type("path")), source.value)
        return None if address is None else StepPlan("put", path=where.data, content={"asset": address})

    def _say(self, item: Item) -> StepPlan | None:
        written: Expr | None = item.value if item.value is not None else item.label
        value = self.static.value(written) if written is not None else None
        if value is None or (not value.broken and not isinstance(value.data, str)):
            self._wrong(item, 'say "text"')
            return None
        return None if value.broken else StepPlan("say", text=str(value.data))

    def _call(self, item: Item) -> StepPlan | None:
        if item.name is None or item.args is None:
            self._wrong(item, 'call tool("argument")')
            return None
        tool = next((t for t in self.tools if t.name == item.name.text), None)
        if tool is None and not self.tools_are_known:
            return None
        if tool is None:
            names = tuple(t.name for t in self.tools)
            guess = did_you_mean(item.name.text, names)
            self._report(item, "T101", f"the task has no tool `{item.name.text}`",
                         f"did you mean `{guess}`?" if guess else "its tools are " + (", ".join(names) or "none"))
            return None
        return self._arguments(item, tool)

    def _arguments(self, item: Item, tool: ToolPlan) -> StepPlan | None:
        properties = tool.parameters["properties"]
        assert isinstance(properties, Mapping)
        names = list(properties)
        given: dict[str, Json] = {}
        for index, arg in enumerate(item.args or ()):
            name = arg.name.text if arg.name is not None else names[index] if index < len(names) else None
            if name is None or name not in properties or arg.value is None:
                self._report(item, "T205", f"the tool `{tool.name}` takes no such argument",
                             "it takes " + (", ".join(names) or "none"))
                return None
            if _is_shell_text(properties[name], arg.value):
                self._report(item, "T207", "a command string inserts nothing: the shell would read it as its own text",
                             'give a list: `call bash(["git", "apply", "/tmp/${row.id}.patch"])`')
                return None
            value = self.static.value(arg.value)
            if value.broken:
                return None
            if not _takes(properties[name], value):
                self.static.fail("T201", f"`{name}` of the tool `{tool.name}` cannot be a {value.type.name}", arg.value,
                                 "give it a value of the type that the tool declares")
                return None
            given[name] = to_setting(value)
        required = tool.parameters["required"]
        missing = [n for n in required if n not in given] if isinstance(required, list | tuple) else []
        if missing:
            self._report(item, "T205", f"the tool `{tool.name}` needs `{missing[0]}`", f"give `{missing[0]}`")
            return None
        return StepPlan("call", tool=tool.name, arguments=given)

    def _wrong(self, item: Item, form: str) -> None:
        self._report(item, "T106", f"a step is written `{form}`", f"write `{form}`")

    def _report(self, item: Item, code: str, message: str, help: str) -> None:
        self.static.found.append(error(code, message, item.span, help=help))


def _takes(schema: Json, value: Val) -> bool:
    """Whether a value is what a tool's parameter takes, by its JSON schema."""
    if not isinstance(schema, Mapping):
        return False
    choices = schema.get("anyOf")
    if isinstance(choices, list | tuple):
        return any(_takes(c, value) for c in choices)
    match schema.get("type"):
        case "array":
            return isinstance(value.data, tuple) and all(_takes(schema.get("items"), v) for v in value.data)
        case "boolean":
            return isinstance(value.data, bool)
        case "integer":
            return isinstance(value.data, Fraction) and value.type.name == "int"
        case "number":
            return isinstance(value.data, Fraction) and value.type.name in ("int", "real")
        case _:
            return isinstance(value.data, str) and value.type.name != "asset"


def _is_shell_text(schema: Json, written: Expr) -> bool:
    """A string with insertions where the tool's parameter is a command."""
    return isinstance(schema, Mapping) and "anyOf" in schema and isinstance(written, Str) and not written.is_literal
