"""Messages, turns, trajectories, verdicts: what a rollout leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from guerdon.compiler.plan.canonical import Json
from guerdon.compiler.plan.expr import Value

Role = Literal["system", "user", "assistant", "tool"]


class Outcome(StrEnum):
    """The three ways in which an episode ends; `invalid` is a fault of ours and never a score."""

    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the policy wrote it: `arguments` is its raw JSON text, not yet trusted."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `call_id` ties a tool's message to its call."""

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a trainable policy sampled in one turn: ids, log-probabilities, loss mask (1 = sampled), version."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    mask: tuple[int, ...]
    weights_version: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One act of a policy: an assistant message, and its tokens where the policy is trainable.

    `malformed` holds, for each thing in the text that looked like a call and was none, the error; `count` is how many
    tokens the turn is by the word of the server that sampled it, None where nobody says.
    """

    message: Message
    malformed: tuple[str, ...] = ()
    tokens: Tokens | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A turn and what came back for it (one `tool` message a call, or one `user` message)."""

    turn: Turn
    observations: tuple[Message, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Counters:
    """`trajectory.*` of the language: what a reward may say of the episode itself."""

    turns: int = 0
    tool_calls: int = 0
    malformed_calls: int = 0
    repeated_calls: int = 0
    tokens: int = 0
    wall_ms: int = 0
    truncated: bool = False
    submitted: bool = False
    violations: int = 0


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """What an executor needs to run one episode: serialisable, and the same everywhere."""

    plan: str
    """Digest of the plan."""
    task: str
    row: str
    sample: int
    seed: int
    policy: str
    """The policy's own identity (`oracle`, `attack:exit0` …)."""

    @property
    def key(self) -> str:
        """The episode's identity within a run."""
        return f"{self.task}/{self.row}#{self.sample}@{self.policy}"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An episode before its verdict: the conversation, its counters, the digest of what was frozen."""

    episode: EpisodeSpec
    prompt: tuple[Message, ...]
    steps: tuple[Step, ...]
    counters: Counters
    answer: str | None
    """What the agent submitted as text, or its last words where nothing was submitted."""
    artefacts: str
    violations: tuple[str, ...] = ()
    """Names of the `forbid` rules that were broken."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one verifier found: an outcome, typed signals, bounded evidence, the reason when not a pass.

    `details` is the kind's own fine grain (`pytest`: `{"tests": {id: "passed" | "failed" | …}}`), for `lock`
    and for people; no reward reads it.
    """

    outcome: Outcome
    signals: Mapping[str, Value]
    reason: str = ""
    evidence: str = ""
    seconds: float = 0.0
    details: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reward:
    """The scored trajectory: exact total as a rational string, its float64 for the learner, each term's share."""

    total: str
    value: float
    terms: Mapping[str, str]
    solved: bool


@dataclass(frozen=True, slots=True)
class Sealed:
    """A finished episode: nothing of it changes any more."""

    trajectory: Trajectory
    outcome: Outcome
    verdicts: Mapping[str, Verdict]
    reward: Reward | None
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds by stage (`setup`, `rollout`, `freeze`, `verify`): for people, never in a reward."""
