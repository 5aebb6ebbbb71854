"""The one table of policies: name to maker. A new policy is one file and one row."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from guerdon.compiler.plan.canonical import Json
from guerdon.runtime.contracts.policy import MessagePolicy, PolicyFault
from guerdon.runtime.contracts.renderer import ToolText
from guerdon.runtime.policy.attacks import EQUALS_ALL, EXIT0
from guerdon.runtime.policy.openai import make_openai
from guerdon.runtime.policy.openai_settings import INCIDENTAL
from guerdon.runtime.policy.plain import Exploit, Idle, Oracle, Quit, Refusal
from guerdon.runtime.policy.scripted import load_script

Settings = Mapping[str, object]
Maker = Callable[[Settings, ToolText | None], MessagePolicy]


def _scripted(settings: Settings, _: ToolText | None) -> MessagePolicy:
    script = settings.get("script")
    if not script:
        raise PolicyFault("policy=scripted needs a file of turns: add policy.script=PATH")
    return load_script(Path(str(script)))


POLICIES: Mapping[str, Maker] = {
    "oracle": lambda *_: Oracle(),
    "idle": lambda *_: Idle(),
    "refusal": lambda *_: Refusal(),
    "quit": lambda *_: Quit(),
    "exploit": lambda *_: Exploit(),
    "scripted": _scripted,
    "exit0": lambda *_: EXIT0,
    "equals_all": lambda *_: EQUALS_ALL,
    "openai": make_openai,
}

ATTACKS = ("exit0", "equals_all")
"""Policies that `calibrate` tries beside the pack's own exploits; none may pass."""


def make(name: str, settings: Settings | None = None, text: ToolText | None = None) -> MessagePolicy:
    """The policy of a name with its settings; `text` is how a policy that writes calls as text does it.
    Raises PolicyFault."""
    maker = POLICIES.get(name)
    if maker is None:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PolicyFault(f"there is no policy {name!r}{hint} There are: {', '.join(POLICIES)}")
    return maker(settings or {}, text)


def deciding(name: str, settings: Mapping[str, Json]) -> dict[str, Json]:
    """The settings that decide what the policy does, as canonical JSON takes them (a float as its shortest decimal):
    two runs that differ only in others are the same run."""
    skipped = INCIDENTAL if name == "openai" else frozenset()
    kept = {key: value for key, value in settings.items() if key not in skipped}
    return {key: repr(value) if isinstance(value, float) else value for key, value in kept.items()}
