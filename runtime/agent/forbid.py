"""The `forbid` rules: which of them an episode broke."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from guerdon.compiler.plan.schema import ForbidPlan
from guerdon.runtime.agent.arguments import canonical
from guerdon.runtime.contracts.sandbox import Artefacts, CollectLimits, Sandbox, SandboxFault

SEARCH_SECONDS = 10.0
_LIMITS = CollectLimits(files=20_000, total_bytes=256 * 1024 * 1024, file_bytes=256 * 1024 * 1024)

# The agent writes the text and an author the pattern: together they can make `re` run for ever, holding the
# interpreter's lock. So the search runs in a child that can be killed.
_CHILD = """
import json, re, sys
rules = json.load(sys.stdin)
print(json.dumps([any(re.search(pattern, text) for text in texts) for pattern, texts in rules]))
"""

Fingerprint = Mapping[str, object]


async def fingerprint(sandbox: Sandbox | None, rules: Sequence[ForbidPlan], *, start: bool) -> Fingerprint:
    """What the `changed` rules watch, as it is now: equal fingerprints mean that nothing changed.

    Raises SandboxFault; also where the files are too many to watch at the start, which no agent can cause.
    """
    watched = [rule for rule in rules if rule.kind == "changed"]
    if sandbox is None or not watched:
        return {}
    found: dict[str, object] = {}
    for rule in watched:
        now = await sandbox.collect(rule.globs, _LIMITS)
        if start and now.problem:
            raise SandboxFault(
                "setup-refused", f"the rule `forbid {rule.name}` cannot be watched: {now.problem}",
                "name fewer or smaller files in `changed([…])`",
            )
        found[rule.name] = _state(now)
    return found


def _state(now: Artefacts) -> object:
    files = tuple((f.path, f.mode, f.digest) for f in now.files)
    return files, tuple(sorted(now.rejected)), now.problem


async def broken(
    rules: Sequence[ForbidPlan], calls: Sequence[tuple[str, Mapping[str, Any]]],
    before: Fingerprint, after: Fingerprint,
) -> tuple[str, ...]:
    """Names of the rules that were broken, in the plan's order.

    `calls` are the well-formed calls (tool, arguments). `network` is never broken: a sandbox has none.
    """
    changed = [rule.name for rule in rules if rule.kind == "changed"]
    hit = {name for name in changed if before.get(name) != after.get(name)}
    patterns = [rule for rule in rules if rule.kind == "called"]
    asked = [[r.pattern, [t for tool, a in calls if tool == r.tool for t in texts(a)]] for r in patterns]
    if any(texts_ for _, texts_ in asked):
        hit |= {rule.name for rule, found in zip(patterns, await _search(asked), strict=True) if found}
    return tuple(rule.name for rule in rules if rule.name in hit)


def texts(arguments: Mapping[str, Any]) -> list[str]:
    """The texts that a `called` pattern is searched in: each argument as the tool would use it, decoded."""
    found = []
    for value in arguments.values():
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list) and all(isinstance(v, str) for v in value):
            found.append(shlex.join(value))
    return [*found, canonical(arguments)]


async def _search(rules: Sequence[object]) -> list[bool]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _CHILD,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        out, _ = await asyncio.wait_for(child.communicate(json.dumps(rules).encode()), SEARCH_SECONDS)
    except TimeoutError:
        # A call written so that the rule cannot be checked counts as one that breaks it.
        return [True] * len(rules)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise SandboxFault("rule-failed", "the search for forbidden calls did not end well",
                           "check the patterns of the pack's `called(…)` rules")
    found: list[bool] = json.loads(out)
    return found
