"""From sealed episodes to what a learner takes: the very ids that were sampled, and nothing of an invalid one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from guerdon.runtime.contracts.learner import Row
from guerdon.runtime.contracts.renderer import Renderer
from guerdon.runtime.contracts.trajectory import Outcome, Sealed

EMPTY = Row((0,), (0,), (0.0,), (0.0,))
"""The row of an episode without a sampled id: it trains nothing."""


def row(sealed: Sealed, advantage: float) -> Row:
    """One episode with its advantage, which every sampled id of it gets.

    Prompts and observations are masked by what the policy noted; an invalid episode is masked whole.
    """
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for step in sealed.trajectory.steps:
        tokens = step.turn.tokens
        if tokens is not None:
            ids += tokens.ids
            mask += tokens.mask
            logprobs += tokens.logprobs
    if not ids:
        return EMPTY
    if sealed.outcome is Outcome.INVALID or not any(mask):
        mask, logprobs, advantage = [0] * len(ids), [0.0] * len(ids), 0.0
    return Row(tuple(ids), tuple(mask), tuple(logprobs), tuple(advantage if on else 0.0 for on in mask))


def demonstration(sealed: Sealed, renderer: Renderer, tools: Sequence[object]) -> Row:
    """A message-level episode as the renderer writes it: its assistant's turns are what is learnt."""
    trajectory = sealed.trajectory
    ids = list(renderer.start(trajectory.prompt, tools))  # type: ignore[arg-type]
    mask = [0] * len(ids)
    for index, step in enumerate(trajectory.steps):
        turn = renderer.turn(step.turn.message)
        ids += turn
        mask += [1] * len(turn)
        if index + 1 < len(trajectory.steps):
            ids = list(renderer.extend(ids, step.observations))
            mask += [0] * (len(ids) - len(mask))
    return Row(tuple(ids), tuple(mask), (0.0,) * len(ids), tuple(float(on) for on in mask))


def fitting(rows: Iterator[Row], context: int) -> tuple[list[Row], int]:
    """The rows that a model of this context can take, and how many it cannot."""
    kept, dropped = [], 0
    for one in rows:
        if len(one.ids) <= context:
            kept.append(one)
        else:
            dropped += 1
    return kept, dropped
