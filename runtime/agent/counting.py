"""Counting what an episode does: `trajectory.*` of the language, from observed calls alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from guerdon.compiler.plan.schema import LimitsPlan
from guerdon.runtime.contracts.trajectory import Counters


@dataclass(slots=True)
class Tally:
    """The running counts of one episode.

    A well-formed call, `submit` among them, counts as a tool call; a malformed one only as malformed. A call
    is repeated when an earlier well-formed one had the same name and the same arguments (spacing and key
    order aside), so repeated_calls < tool_calls whenever there is any call.
    """

    turns: int = 0
    tool_calls: int = 0
    malformed_calls: int = 0
    repeated_calls: int = 0
    tokens: int = 0
    truncated: bool = False
    submitted: bool = False
    _seen: set[str] = field(default_factory=set)

    def called(self, identity: str) -> None:
        """Count a well-formed call."""
        self.tool_calls += 1
        if identity in self._seen:
            self.repeated_calls += 1
        self._seen.add(identity)

    def malformed(self, count: int = 1) -> None:
        """Count calls that were none."""
        self.malformed_calls += count

    def close(self, limits: LimitsPlan, wall_ms: int, violations: int) -> Counters:
        """The final counters. Tokens and wall time stop at their limits: what lies past them was cut off."""
        return Counters(
            turns=self.turns, tool_calls=self.tool_calls, malformed_calls=self.malformed_calls,
            repeated_calls=self.repeated_calls,
            tokens=self.tokens if limits.tokens is None else min(self.tokens, limits.tokens),
            wall_ms=min(wall_ms, limits.wall_ms), truncated=self.truncated, submitted=self.submitted,
            violations=violations,
        )
