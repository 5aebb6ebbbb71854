"""Demonstrations as turns: one step of a solution or exploit a turn, through tools the agent itself has."""

from __future__ import annotations

import base64
import json
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon.compiler.plan.schema import StepPlan
from guerdon.runtime.contracts.assets import expand
from guerdon.runtime.contracts.policy import Episode, Occasion, PolicyFault
from guerdon.runtime.contracts.sandbox import PutFile
from guerdon.runtime.contracts.trajectory import Message, ToolCall, Turn

CHUNK = 512 * 1024
"""Bytes of a file that one call carries."""

Rewrite = Callable[[PutFile], PutFile]


@dataclass(slots=True)
class Playback(Episode):
    """An episode that plays turns one after the other and then ends."""

    turns: Iterator[Turn]

    async def act(self, messages: Sequence[Message]) -> Turn | None:
        """The next turn, whatever was observed."""
        return next(self.turns, None)


def turn(words: str = "", *calls: tuple[str, Mapping[str, Any]]) -> Turn:
    """A turn that says `words` and makes calls, with arguments as raw JSON text like any policy's."""
    made = tuple(
        ToolCall(f"call_{i}", name, json.dumps(arguments, ensure_ascii=False))
        for i, (name, arguments) in enumerate(calls)
    )
    return Turn(Message("assistant", words, made))


def play(occasion: Occasion, steps: Sequence[StepPlan], rewrite: Rewrite | None = None) -> Iterator[Turn]:
    """The turns of a demonstration; `rewrite` changes each file before it is put.

    A file goes through `put` where the task has that tool and the file is text, else through `bash`: so the
    trajectory holds only calls that a trained policy could make. Raises AssetFault, PolicyFault.
    """
    for step in steps:
        if step.do == "say":
            yield turn(step.text)
        elif step.do == "call":
            yield turn("", (step.tool, step.arguments or {}))
        else:
            files = [rewrite(f) if rewrite else f for f in put_files(occasion, step)]
            yield turn("", *(call for file in files for call in _write(occasion, file)))


def put_files(occasion: Occasion, step: StepPlan) -> tuple[PutFile, ...]:
    """The files that a `put` step writes. Raises AssetFault."""
    content = step.content or {}
    if "asset" in content:
        return expand(occasion.assets, step.path, str(content["asset"]))
    return (PutFile(step.path, str(content.get("text", "")).encode()),)


def _write(occasion: Occasion, file: PutFile) -> Iterator[tuple[str, Mapping[str, Any]]]:
    tools = {tool.name for tool in occasion.tools}
    text = _text(file.data)
    if "put" in tools and text is not None and (len(file.data) <= CHUNK or "bash" not in tools):
        yield "put", {"path": file.path, "content": text}
        if file.mode & 0o111 and "bash" in tools:
            yield "bash", {"command": ["chmod", f"{file.mode & 0o777:o}", file.path]}
    elif "bash" in tools:
        yield from (("bash", {"command": command}) for command in _commands(file, text))
    else:
        raise PolicyFault(
            f"the demonstration of {occasion.instance.task}/{occasion.instance.row} puts {file.path}, but "
            "the task has neither the tool `put` nor `bash`; add one of them to `tools`"
        )


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _commands(file: PutFile, text: str | None) -> Iterator[str]:
    path = shlex.quote(file.path)
    folder = shlex.quote(posixpath.dirname(file.path))
    mode = f" && chmod {file.mode & 0o777:o} {path}" if file.mode & 0o111 else ""
    if text is not None and len(file.data) <= CHUNK and text.endswith("\n") and "\r" not in text:
        end = _unused("EOF", text)
        yield f"mkdir -p {folder} && cat > {path} <<'{end}'{mode}\n{text}{end}"
        return
    pieces = [file.data[i : i + CHUNK] for i in range(0, len(file.data), CHUNK)] or [b""]
    for i, piece in enumerate(pieces):
        lines = base64.encodebytes(piece).decode()
        arrow, last = ">" if i == 0 else ">>", mode if i == len(pieces) - 1 else ""
        yield f"mkdir -p {folder} && base64 -d {arrow} {path} <<'EOF'{last}\n{lines}EOF"


def _unused(word: str, text: str) -> str:
    while word in text:
        word += "_"
    return word
