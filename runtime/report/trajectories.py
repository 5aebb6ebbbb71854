"""A few trajectories to read: the same rows before and after, side by side; all of it is text that agents wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from guerdon.runtime.contracts.trajectory import Message, Sealed, Step, ToolCall, Verdict
from guerdon.runtime.report.charts import number
from guerdon.runtime.report.progress import printable

SHOWN = 4000
"""Characters of a message that are shown."""
TURNS = 12
"""Turns of a trajectory that are shown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A trajectory to read, and when it was played."""

    when: str
    sealed: Sealed


def trajectories(samples: Sequence[Sample]) -> str:
    """The rows in the order in which they come, each with its samples side by side; the first is open."""
    rows: dict[tuple[str, str, int], list[Sample]] = {}
    for one in samples:
        episode = one.sealed.trajectory.episode
        rows.setdefault((episode.task, episode.row, episode.sample), []).append(one)
    return "".join(_row(row, group, index == 0) for index, ((_, row, _), group) in enumerate(rows.items()))


def shown(text: str) -> str:
    """Text of an agent's, cut, its control characters spelled out, and harmless in a page."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]} … {len(text) - SHOWN} more characters"
    return escape(printable(cut))


def _row(row: str, group: Sequence[Sample], first: bool) -> str:
    prompts = [one.sealed.trajectory.prompt for one in group]
    same = all(prompt == prompts[0] for prompt in prompts)
    verdicts = " → ".join(_outcome(one.sealed) for one in group)
    above = "".join(map(_message, prompts[0])) if same else ""
    sides = "".join(_side(one, not same) for one in group)
    return (
        f"<details{' open' if first else ''}><summary><code>{shown(row)}</code> {verdicts}</summary>"
        f"{above}<div class=sides>{sides}</div></details>"
    )


def _outcome(sealed: Sealed) -> str:
    reward = "" if sealed.reward is None else f" <span class=sub>{number(sealed.reward.value)}</span>"
    return f"<b class={sealed.outcome.value}>{sealed.outcome.value}</b>{reward}"


def _side(sample: Sample, with_prompt: bool) -> str:
    trajectory = sample.sealed.trajectory
    prompt = "".join(map(_message, trajectory.prompt)) if with_prompt else ""
    left = len(trajectory.steps) - TURNS
    more = f"<p class=sub>{left} more turns</p>" if left > 0 else ""
    turns = "".join(map(_step, trajectory.steps[:TURNS]))
    return (
        f"<section><h3>{shown(sample.when)} {_outcome(sample.sealed)}</h3>{prompt}{turns}{more}"
        f"{_verdict(sample.sealed)}</section>"
    )


def _step(step: Step) -> str:
    malformed = "".join(f"<p class=note>malformed call: {shown(error)}</p>" for error in step.turn.malformed)
    return _message(step.turn.message) + malformed + "".join(map(_message, step.observations))


def _message(message: Message) -> str:
    calls = "".join(map(_call, message.calls))
    words = f"<pre>{shown(message.content)}</pre>" if message.content else ""
    return f"<div class=said><div class=role>{escape(message.role)}</div><div>{words}{calls}</div></div>"


def _call(call: ToolCall) -> str:
    """A call: its arguments by name where they are an object, as they were written where they are not."""
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        return f"<pre><b>{shown(call.name)}</b>{''.join(f'{chr(10)}{_argument(k, v)}' for k, v in given.items())}</pre>"
    return f"<pre><b>{shown(call.name)}</b> {shown(call.arguments)}</pre>"


def _argument(name: str, value: object) -> str:
    return f"<i>{shown(name)}</i> {shown(value if isinstance(value, str) else json.dumps(value))}"


def _verdict(sealed: Sealed) -> str:
    answer = sealed.trajectory.answer
    rows = [("answer", answer)] if answer else []
    rows += [(f"{name} verifier", _found(verdict)) for name, verdict in sorted(sealed.verdicts.items())]
    rows += [("reason", sealed.reason)] if sealed.reason else []
    rows += [("broken rules", ", ".join(sealed.trajectory.violations))] if sealed.trajectory.violations else []
    terms: Mapping[str, str] = {} if sealed.reward is None else sealed.reward.terms
    rows += [(f"reward: {name}", value) for name, value in sorted(terms.items())]
    if sealed.reward is not None:
        rows.append(("reward", f"{sealed.reward.total} = {number(sealed.reward.value)}"))
    cells = (f"<tr><th>{shown(name)}</th><td>{shown(text)}</td></tr>" for name, text in rows)
    return f"<table>{''.join(cells)}</table>"


def _found(verdict: Verdict) -> str:
    signals = ", ".join(f"{name} = {value}" for name, value in sorted(verdict.signals.items()))
    return "; ".join(part for part in (verdict.outcome.value, signals, verdict.reason) if part)
