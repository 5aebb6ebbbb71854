"""The tool protocol: every call of every policy goes through `ToolBox.call`."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from guerdon.compiler.plan.schema import ToolPlan
from guerdon.runtime.agent.arguments import BadArguments, canonical, parse
from guerdon.runtime.contracts.sandbox import ExecResult, PutFile, Sandbox, Shell
from guerdon.runtime.contracts.trajectory import ToolCall

CALL_WALL = 120.0
"""Seconds that one call may take, where the episode's own limit is not nearer."""
READ_BYTES = 1024 * 1024
SHOWN_BYTES = 16 * 1024
"""Bytes of a command's output that are shown: three quarters from its start, the rest from its end."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of a call: the text for the agent, and what the counters and rules need to know of it.

    `arguments` is None for a malformed call; `identity` is the same for two calls that ask the same.
    """

    text: str
    arguments: Mapping[str, Any] | None = None
    identity: str = ""
    submitted: bool = False
    answer: str | None = None


class ToolBox:
    """The tools of one episode over one sandbox (None for a task that needs none)."""

    def __init__(self, tools: Sequence[ToolPlan], sandbox: Sandbox | None) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._sandbox = sandbox
        self._shell: Shell | None = None

    async def call(self, call: ToolCall, wall: float) -> Observed:
        """Check and run one call within `wall` seconds.

        A malformed call is answered with an error to act upon. Raises SandboxFault: a fault of ours is
        never an observation.
        """
        try:
            tool = self._tool(call.name)
            arguments = parse(call.arguments, tool.parameters)
            _no_nul(arguments)
            observed = await _RUN[tool.name](self, arguments, min(wall, CALL_WALL))
        except BadArguments as wrong:
            return Observed(f"error: {wrong}", None)
        return replace(observed, arguments=arguments, identity=f"{tool.name} {canonical(arguments)}")

    async def close(self) -> None:
        """End the shell, if one was opened."""
        if self._shell is not None:
            await self._shell.close()

    def _tool(self, name: str) -> ToolPlan:
        tool = self._tools.get(name)
        if tool is not None and name in _RUN:
            return tool
        near = difflib.get_close_matches(name, self._tools, n=1)
        have = ", ".join(self._tools) or "no tools"
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadArguments(f"there is no tool {name[:80]!r}{hint} You have: {have}")

    def sandbox(self) -> Sandbox:
        """The sandbox; a tool that needs one where the task has none is an error of the call."""
        if self._sandbox is None:
            raise BadArguments("this task has no sandbox; use submit")
        return self._sandbox

    async def shell(self) -> Shell:
        """The one shell of the episode, opened on first use."""
        if self._shell is None:
            self._shell = await self.sandbox().shell()
        return self._shell


async def _bash(box: ToolBox, arguments: Mapping[str, Any], wall: float) -> Observed:
    command = arguments.get("command", "")
    text = command if isinstance(command, str) else shlex.join(command)
    if not text.strip():
        raise BadArguments("'command' is empty")
    shell = await box.shell()
    return Observed(render(await shell.run(text, wall=wall, output=READ_BYTES), wall))


async def _put(box: ToolBox, arguments: Mapping[str, Any], wall: float) -> Observed:
    path = arguments.get("path", "")
    if not path.startswith("/"):
        raise BadArguments(f"'path' must be absolute, not {path[:200]!r}")
    try:
        mode = int(arguments.get("mode", "644"), 8)
    except ValueError:
        raise BadArguments("'mode' must be octal permission bits such as \"755\"") from None
    try:
        data = arguments.get("content", "").encode()
        await box.sandbox().put([PutFile(path, data, mode & 0o777)])
    except OSError as refused:
        return Observed(f"error: cannot write {path}: {refused.strerror or refused}")
    return Observed(f"wrote {len(data)} bytes to {path}")


async def _submit(box: ToolBox, arguments: Mapping[str, Any], wall: float) -> Observed:
    answer = arguments.get("answer")
    return Observed("submitted", submitted=True, answer=answer or None)


_RUN: Mapping[str, Callable[[ToolBox, Mapping[str, Any], float], Awaitable[Observed]]] = {
    "bash": _bash,
    "put": _put,
    "submit": _submit,
}
TOOLS = tuple(_RUN)
"""The tools that this version can run."""


def render(result: ExecResult, wall: float) -> str:
    """A command's result as the agent reads it: output (cut in the middle when long), then how it ended."""
    body = cut(result.stdout + result.stderr, result.truncated)
    if result.timed_out or result.exit_code is None:
        end = f"[timed out after {wall:g} s: the command was killed]"
    else:
        end = f"[exit code {result.exit_code}]"
    return f"{body}{'' if not body or body.endswith(chr(10)) else chr(10)}{end}"


def cut(output: bytes, truncated: bool = False) -> str:
    """Output bounded to SHOWN_BYTES, saying how much was left out; bytes that are not UTF-8 are replaced."""
    left = len(output) - SHOWN_BYTES
    if left <= 0 and not truncated:
        return output.decode(errors="replace")
    head = SHOWN_BYTES * 3 // 4
    first, last = (output, b"") if left <= 0 else (output[:head], output[-(SHOWN_BYTES - head) :])
    # Where the sandbox itself stopped reading, the true number is not known, only that it is larger.
    note = f"[output cut: {'more than ' if truncated else ''}{max(left, 0)} bytes left out]"
    return f"{first.decode(errors='replace')}\n{note}\n{last.decode(errors='replace')}"


def _no_nul(arguments: Mapping[str, Any]) -> None:
    for key, value in arguments.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str) and "\0" in part and key != "content":
                raise BadArguments(f"{key!r} holds a NUL character")
