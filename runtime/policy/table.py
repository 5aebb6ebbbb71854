"""The one table of policies: name to maker. A new policy is one file and one row."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from guerdon.runtime.contracts.policy import MessagePolicy, PolicyFault
from guerdon.runtime.policy.attacks import EQUALS_ALL, EXIT0
from guerdon.runtime.policy.plain import Exploit, Idle, Oracle, Quit, Refusal
from guerdon.runtime.policy.scripted import load_script

Settings = Mapping[str, object]


def _scripted(settings: Settings) -> MessagePolicy:
    script = settings.get("script")
    if not script:
        raise PolicyFault("policy=scripted needs a file of turns: add policy.script=PATH")
    return load_script(Path(str(script)))


POLICIES: Mapping[str, Callable[[Settings], MessagePolicy]] = {
    "oracle": lambda _: Oracle(),
    "idle": lambda _: Idle(),
    "refusal": lambda _: Refusal(),
    "quit": lambda _: Quit(),
    "exploit": lambda _: Exploit(),
    "scripted": _scripted,
    "exit0": lambda _: EXIT0,
    "equals_all": lambda _: EQUALS_ALL,
}

ATTACKS = ("exit0", "equals_all")
"""Policies that `calibrate` tries beside the pack's own exploits; none may pass."""


def make(name: str, settings: Settings | None = None) -> MessagePolicy:
    """The policy of a name with its settings. Raises PolicyFault."""
    maker = POLICIES.get(name)
    if maker is None:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PolicyFault(f"there is no policy {name!r}{hint} There are: {', '.join(POLICIES)}")
    return maker(settings or {})
