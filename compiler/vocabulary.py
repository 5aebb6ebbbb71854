"""Which blocks the language has and what each may hold: data, so that a new block is a row here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VALUE = "value"
"""`key = expression`"""
BLOCK = "block"
"""`key [(args)] { … }`"""
NAMED = "named"
"""`word name … `: as often as wanted"""
LABELLED = "labelled"
"""`word "label" { … }`: as often as wanted"""
CLAIM = "claim"
"""`ensure …`, `fact …`: as often as wanted"""
ALLOW = "allow"
"""`allow CODE because "…"`"""
STEP = "step"
"""`put`, `call`, `say`: as often as wanted, in order"""
BARE = "bare"
"""`word value`: `edition 1`, `run ["a"]`"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a block holds: known keys with their shapes, or (`free`) keys that the author chooses."""

    keys: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, str] = field(default_factory=dict)
    """For keys of shape BLOCK, NAMED or LABELLED: the name of the shape of their body."""
    free: str = ""
    """`value` (`name = expr`), `path` (`"path" = expr`), `field` (`name: type`) or `words` (`name = expr`)."""
    required: tuple[str, ...] = ()


SHAPES: Mapping[str, Shape] = {
    "file": Shape(
        keys={"edition": BARE, "import": BARE, "dataset": NAMED, "environment": NAMED, "verifier": NAMED,
              "reward": NAMED, "task": NAMED, "image": NAMED, "tool": NAMED, "kind": NAMED, "allow": ALLOW},
        blocks={"dataset": "dataset", "environment": "environment", "verifier": "verifier", "reward": "reward",
                "task": "task", "image": "image", "tool": "tool", "kind": "kind"},
    ),
    "dataset": Shape(
        keys={"key": VALUE, "schema": BLOCK, "split": BLOCK},
        blocks={"schema": "fields", "split": "shares"}, required=("key", "schema"),
    ),
    "environment": Shape(
        keys={"image": VALUE, "workdir": VALUE, "files": BLOCK, "resources": BLOCK, "network": VALUE,
              "git": VALUE, "env": BLOCK, "service": NAMED},
        blocks={"files": "paths", "resources": "resources", "env": "variables", "service": "service"},
        required=("image",),
    ),
    "resources": Shape(keys={"cpu": VALUE, "memory": VALUE, "disk": VALUE, "pids": VALUE}),
    "service": Shape(keys={"run": BARE, "ready": VALUE, "env": BLOCK}, blocks={"env": "variables"}, required=("run",)),
    "verifier": Shape(
        keys={"collect": VALUE, "hidden": BLOCK, "limits": BLOCK, "signals": BLOCK, "services": VALUE,
              "fact": CLAIM, "allow": ALLOW},
        blocks={"hidden": "paths", "limits": "verifier limits", "signals": "fields"},
    ),
    "verifier limits": Shape(keys={"wall": VALUE}),
    "reward": Shape(
        keys={"solved": VALUE, "total": VALUE, "term": NAMED, "weight": NAMED, "ensure": CLAIM, "allow": ALLOW},
    ),
    "task": Shape(
        keys={"environment": VALUE, "prompt": VALUE, "tools": VALUE, "limits": BLOCK, "files": BLOCK, "verify": BLOCK,
              "reward": VALUE, "difficulty": VALUE, "solution": BLOCK, "exploit": LABELLED, "forbid": NAMED,
              "milestone": NAMED, "allow": ALLOW},
        blocks={"limits": "limits", "files": "paths", "verify": "bindings", "solution": "steps", "exploit": "steps"},
        required=("prompt", "verify", "reward", "limits"),
    ),
    "limits": Shape(keys={"turns": VALUE, "tokens": VALUE, "wall": VALUE}, required=("turns",)),
    "steps": Shape(keys={"put": STEP, "call": STEP, "say": STEP}, blocks={"put": "put"}),
    "put": Shape(keys={"from": VALUE, "text": VALUE}),
    "image": Shape(keys={"packages": VALUE}),
    "tool": Shape(keys={"about": VALUE}, required=("about",)),
    "kind": Shape(
        keys={"about": VALUE, "runs": VALUE, "sandbox": VALUE, "positional": VALUE, "settings": BLOCK, "choices": BLOCK,
              "signals": BLOCK, "start": BLOCK, "fact": CLAIM},
        blocks={"settings": "fields", "choices": "words", "signals": "fields", "start": "words"},
    ),
    "fields": Shape(free="field"),
    "shares": Shape(free="value"),
    "paths": Shape(free="path"),
    "variables": Shape(free="value"),
    "bindings": Shape(free="value"),
    "words": Shape(free="value"),
}

WRITTEN = {
    VALUE: "{0} = …", BLOCK: "{0} {{ … }}", NAMED: "{0} NAME …", LABELLED: '{0} "what" {{ … }}',
    CLAIM: "{0} …", ALLOW: 'allow CODE because "reason"', STEP: "{0} …", BARE: "{0} …",
}
"""How each shape is spelled, for messages."""
