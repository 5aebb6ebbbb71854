"""Verifier kinds and tools as the std library (or a pack) declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from guerdon.compiler.plan.canonical import Json
from guerdon.compiler.plan.schema import ToolPlan
from guerdon.compiler.program import Declaration
from guerdon.compiler.types import BROKEN, SETTING_TYPES, Type, read_type
from guerdon.dsl.diagnostic import Diagnostic, error
from guerdon.dsl.tree import Bool, Expr, Item, ListLit, Ref, Str


@dataclass(frozen=True)
class Kind:
    """What a verifier kind declares."""

    name: str
    runs: bool
    sandbox: bool
    positional: tuple[str, ...]
    settings: Mapping[str, tuple[Type, Expr | None]]
    choices: Mapping[str, tuple[str, ...]]
    signals: Mapping[str, Type]
    facts: tuple[Item, ...]
    start: Mapping[str, Expr]


def read_kind(declared: Declaration, found: list[Diagnostic]) -> Kind:
    """Read a `kind` block."""
    item = declared.item
    settings = {f.word.text: (read_type(f.type, found, extra=SETTING_TYPES), f.value)
                for f in _body(item, "settings") if f.type is not None}
    positional = item.find("positional")
    names = positional.value.items if positional and isinstance(positional.value, ListLit) else ()
    return Kind(
        name=declared.name,
        runs=_flag(item, "runs", False),
        sandbox=_flag(item, "sandbox", True),
        positional=tuple(n.name for n in names if isinstance(n, Ref)),
        settings=settings,
        choices={c.word.text: _strings(c.value) for c in _body(item, "choices")},
        signals=read_signals(item, found),
        facts=tuple(item.all("fact")),
        start={s.word.text: s.value for s in _body(item, "start") if s.value is not None},
    )


def read_signals(item: Item, found: list[Diagnostic]) -> dict[str, Type]:
    """The `signals { … }` of a kind or a verifier; a number without a range is an error."""
    result: dict[str, Type] = {}
    for field in _body(item, "signals"):
        assert field.type is not None
        kind = read_type(field.type, found)
        result[field.word.text] = BROKEN  # what uses it is no second error
        if kind.name in ("int", "real") and (kind.low is None or kind.high is None):
            found.append(error("T203", f"the signal `{field.word.text}` has no range", field.span,
                               help=f"write `{field.word.text}: {kind.name} in 0..1` (with its own bounds)"))
        elif kind.name not in ("bool", "int", "real", "?"):
            found.append(error("T201", "a signal is a bool, an int or a real", field.span, help="choose one of these"))
        else:
            result[field.word.text] = kind
    return result


def read_tool(declared: Declaration, found: list[Diagnostic]) -> ToolPlan:
    """A `tool` block as the agent will see it: parameters as a JSON schema."""
    item = declared.item
    properties: dict[str, Json] = {}
    required: list[str] = []
    for arg in item.args or ():
        if arg.name is None or arg.type is None:
            found.append(error("T106", "a tool's parameter is written `name: type`", arg.span, help="give it a type"))
            continue
        properties[arg.name.text] = _json_type(read_type(arg.type, found, extra=SETTING_TYPES))
        if arg.value is None:
            required.append(arg.name.text)
    about = item.find("about")
    text = about.value.literal if about and isinstance(about.value, Str) else None
    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": required,
                               "additionalProperties": False}
    return ToolPlan(declared.name, text or "", schema)


def _json_type(kind: Type) -> Json:
    match kind.name:
        case "command":
            return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        case "int":
            return {"type": "integer"}
        case "real":
            return {"type": "number"}
        case "bool":
            return {"type": "boolean"}
        case "list":
            return {"type": "array", "items": _json_type(kind.element) if kind.element else {}}
        case _:
            return {"type": "string"}


def _body(item: Item, word: str) -> tuple[Item, ...]:
    block = item.find(word)
    return (block.body or ()) if block else ()


def _flag(item: Item, word: str, default: bool) -> bool:
    found = item.find(word)
    return found.value.value if found and isinstance(found.value, Bool) else default


def _strings(expr: Expr | None) -> tuple[str, ...]:
    if not isinstance(expr, ListLit):
        return ()
    return tuple(i.literal for i in expr.items if isinstance(i, Str) and i.literal is not None)
