"""Turns read from a file: for trying a task by hand, and for recorded behaviour."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from guerdon.runtime.contracts.policy import Episode, Occasion, PolicyFault
from guerdon.runtime.contracts.trajectory import Message, ToolCall, Turn
from guerdon.runtime.policy.demo import Playback

_SHAPE = (
    "a script is `turns: [{say: text, calls: [{tool: name, arguments: {…}}]}, …]`, "
    "or `rows: {task/row: [turns]}`; `arguments` may also be text, which is then sent as it is"
)


@dataclass(frozen=True, slots=True)
class Scripted:
    """Plays `turns` everywhere, or a row's own turns where `rows` has them; nothing to do elsewhere."""

    turns: tuple[Turn, ...] | None
    rows: Mapping[str, tuple[Turn, ...]]
    name: str = "scripted"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return () if self._turns(occasion) is None else (self.name,)

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        return Playback(iter(self._turns(occasion) or ()))

    def _turns(self, occasion: Occasion) -> tuple[Turn, ...] | None:
        return self.rows.get(f"{occasion.instance.task}/{occasion.instance.row}", self.turns)


def load_script(path: Path) -> Scripted:
    """Read a script (YAML, or JSON). Raises PolicyFault naming the file, the place and the shape wanted."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as wrong:
        raise PolicyFault(f"the script {path} cannot be read: {wrong}; check policy.script") from wrong
    if not isinstance(document, dict) or set(document) - {"turns", "rows"} or not document:
        raise PolicyFault(f"the script {path} has another shape: {_SHAPE}")
    rows = document.get("rows", {})
    if not isinstance(rows, dict):
        raise PolicyFault(f"the script {path}: `rows` must be a mapping; {_SHAPE}")
    turns = _turns(document["turns"], f"{path}: turns") if "turns" in document else None
    return Scripted(turns, {str(row): _turns(made, f"{path}: rows.{row}") for row, made in rows.items()})


def _turns(value: Any, where: str) -> tuple[Turn, ...]:
    if not isinstance(value, list):
        raise PolicyFault(f"{where} must be a list of turns; {_SHAPE}")
    return tuple(_turn(item, f"{where}[{i}]") for i, item in enumerate(value))


def _turn(value: Any, where: str) -> Turn:
    if not isinstance(value, dict) or set(value) - {"say", "calls"}:
        raise PolicyFault(f"{where} must have `say`, `calls` or both and nothing else; {_SHAPE}")
    say, calls = value.get("say", ""), value.get("calls", [])
    if not isinstance(say, str) or not isinstance(calls, list):
        raise PolicyFault(f"{where}: `say` must be text and `calls` a list; {_SHAPE}")
    made = tuple(_call(call, i, f"{where}.calls[{i}]") for i, call in enumerate(calls))
    return Turn(Message("assistant", say, made))


def _call(value: Any, index: int, where: str) -> ToolCall:
    whole = isinstance(value, dict) and not set(value) - {"tool", "arguments"}
    if not whole or not isinstance(value.get("tool"), str):
        raise PolicyFault(f"{where} must have `tool`, and `arguments` where it takes any; {_SHAPE}")
    arguments = value.get("arguments", {})
    try:
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError) as wrong:
        raise PolicyFault(f"{where}: `arguments` are not JSON values ({wrong})") from wrong
    return ToolCall(f"call_{index}", value["tool"], raw)
