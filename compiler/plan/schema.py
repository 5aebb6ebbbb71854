"""The plan's data: everything the runtime needs, nothing it does not.

An asset is named by its content: `sha256:…` for the bytes of a file, `tree-sha256:…` for a folder, whose
hexadecimal part is the sha256 of its manifest, canonical JSON `[[relative path, mode, "sha256:…"], …]` in
path order, stored like any file. Numbers are integers (milliseconds, bytes, thousandths of a CPU) or
rationals written as strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from guerdon.compiler.plan.canonical import Json
from guerdon.compiler.plan.expr import Expr

PLAN_FORMAT = "guerdon.plan/1"
Rational: TypeAlias = Annotated[str, "rational"]
"""An exact number as `canonical.rational` writes it; the codec refuses any other text."""

MAX_CALLS_PER_TURN = 16
"""Calls beyond this many in one turn are not run: proofs bound the counters of a trajectory by it."""


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """An image recipe; `digest` is what `guerdon lock` recorded for it, or None."""

    kind: str
    packages: tuple[str, ...]
    reference: str
    digest: str | None


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """Where an agent works. `files` are (absolute path, digest of a tree or file asset)."""

    image: str
    """Key into the plan's images."""
    workdir: str
    files: tuple[tuple[str, str], ...]
    scratch: tuple[str, ...]
    cpu_milli: int
    memory: int
    disk: int
    pids: int
    network: str
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """A tool as the agent sees it: name, what it does, its parameters as a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class SignalPlan:
    """A signal's type: `bool`, `int` or `real` with a range, `direction` `up`, `down` or empty."""

    type: str
    low: Rational | None
    high: Rational | None
    direction: str


@dataclass(frozen=True, slots=True)
class VerifierPlan:
    """One bound verifier of one row. `settings` are the kind's own, resolved; times in milliseconds.

    `hidden` are (absolute path, asset digest); `signals` what the verdict must hold, in these ranges;
    `facts` boolean expressions over the signals (`Symbol("signal", ("", name))`) asserted at run time.
    """

    name: str
    kind: str
    settings: Mapping[str, Json]
    collect: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...]
    wall_ms: int
    signals: Mapping[str, SignalPlan]
    facts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of a demonstration: `put` (path, content), `call` (tool, arguments) or `say` (text).

    `content` of a put is `{"text": …}` or `{"asset": digest}` (a file or a tree below `path`).
    """

    do: str
    path: str = ""
    content: Mapping[str, Json] | None = None
    tool: str = ""
    arguments: Mapping[str, Json] | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class ForbidPlan:
    """A rule the agent must keep: `changed` (globs), `called` (tool, regular expression) or `network`."""

    name: str
    kind: str
    globs: tuple[str, ...] = ()
    tool: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class LimitsPlan:
    """Bounds of an episode; `tokens` None means not bounded."""

    turns: int
    tokens: int | None
    wall_ms: int


@dataclass(frozen=True, slots=True)
class ExploitPlan:
    """A known attack of the pack's author that must earn nothing."""

    name: str
    steps: tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """One row of one task, resolved: the line of the rows sidecar."""

    task: str
    row: str
    split: str
    prompt: str
    environment: str | None
    """Key into the plan's environments; None for a task that needs no sandbox."""
    files: tuple[tuple[str, str], ...]
    """The row's own files, laid over the environment's."""
    verify: tuple[VerifierPlan, ...]
    solution: tuple[StepPlan, ...]
    exploits: tuple[ExploitPlan, ...]
    values: Mapping[str, Rational]
    """Row values that the reward reads, as rationals."""
    difficulty: str | None = None


@dataclass(frozen=True, slots=True)
class TermPlan:
    """One term: its weight's symbol, the weight as written, the range it may be swept in, its expression."""

    name: str
    weight: Expr
    default: Rational
    low: Rational
    high: Rational
    expr: Expr


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """One property of a reward and what became of it: `proved`, `refuted`, `unknown` or `waived`."""

    text: str
    verdict: str
    detail: str
    engine: str


@dataclass(frozen=True, slots=True)
class RewardPlan:
    """A task's reward, bound to its verifiers: symbols name the task's own verifiers.

    `terms` refer to their weights as `Symbol("weight", (name,))`; `weights` gives value and range of each.
    """

    name: str
    solved: Expr
    terms: tuple[TermPlan, ...]
    total: Expr
    weights: Mapping[str, tuple[Rational, Rational, Rational]]
    """name -> (value, low, high)."""
    low: Rational
    high: Rational
    """The proved range of `total`, asserted again at run time."""
    claims: tuple[ClaimPlan, ...]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What the rows of one task share."""

    name: str
    tools: tuple[ToolPlan, ...]
    limits: LimitsPlan
    forbids: tuple[ForbidPlan, ...]
    milestones: tuple[str, ...]
    reward: RewardPlan
    rows: int
    splits: Mapping[str, int]
    not_yet: tuple[str, ...] = ()
    """What the task needs and this version cannot run, in words: `guerdon run` refuses it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled pack. `instances` is the digest of the sidecar: one canonical JSON line a row."""

    pack: str
    edition: int
    images: Mapping[str, ImagePlan]
    environments: Mapping[str, EnvironmentPlan]
    tasks: Mapping[str, TaskPlan]
    instances: str
    assets: tuple[str, ...]
    """Digests of every asset the rows refer to, sorted."""
    unlocked: tuple[str, ...]
    """What `guerdon lock` has still to find out, in words."""
