"""A training run as one page: headline, curves, a few trajectories to read; no script, nothing from outside."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.trajectory import Message, Sealed
from guerdon.runtime.report.charts import Points, lines, number, stacked
from guerdon.runtime.report.progress import printable

FILE = "report.html"
SHOWN = 4000
"""Characters of a message that are shown."""
CURVES = (
    ("Loss of the supervised start", "warm", {"loss": "loss"}, None),
    ("Held-out demonstrations: mean likelihood", "warm", {"likelihood": "likelihood"}, 0.0),
    ("Entropy a token", "train", {"entropy": "entropy"}, 0.0),
    ("KL", "train", {"kl": "policy to sampler", "kl_reference": "policy to reference"}, None),
    ("Share of clipped tokens", "train", {"clip_share": "clipped"}, 0.0),
    ("Gradient norm", "train", {"grad_norm": "before clipping"}, 0.0),
    ("Groups", "train", {"zero_variance_groups": "all rewards equal", "trained_groups": "trained"}, 0.0),
    ("An episode", "train", {"episode/turns": "turns", "episode/malformed_calls": "malformed calls"}, 0.0),
    ("Share of invalid episodes", "train", {"invalid_share": "invalid"}, 0.0),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A trajectory to read, and when it was played."""

    when: str
    sealed: Sealed


def write_report(folder: Path, samples: Sequence[Sample] = ()) -> Path:
    """Write `report.html` from what a training run has left in its folder so far; the same files, the same bytes.

    Missing or torn files are named in it. Raises OSError where the folder cannot be written.
    """
    problems: list[str] = []
    metrics, times = _rows(folder / "metrics.jsonl", problems), _rows(folder / "times.jsonl", problems)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(folder.name)}</title><style>{_style()}</style>",
        f"<h1>{escape(folder.name)}</h1><p class=sub>a training run of guerdon</p>",
        *(f"<p class=note>{escape(problem)}</p>" for problem in problems),
        _cards(metrics, times), "<h2>Curves</h2><div class=charts>", _curves(metrics, times), "</div>",
        "<h2>Trajectories</h2>" if samples else "", *(_sample(one) for one in samples),
        "<h2>Configuration</h2><details><summary>config.yaml</summary><pre>", _text(folder / "config.yaml"),
        "</pre></details>", _links(folder), "</html>",
    ]
    target = folder / FILE
    beside = target.with_name(f".{FILE}.partial")
    beside.write_text("\n".join(part for part in parts if part) + "\n", encoding="utf-8", errors="replace")
    beside.replace(target)
    return target


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927)."""
    if count <= 0:
        return 0.0, 1.0
    z = 1.959964
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def _style() -> str:
    return (files(__package__) / "style.css").read_text(encoding="utf-8")


def _rows(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        problems.append(f"{path.name} is missing")
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found.append({"step": int(row["step"]), "kind": str(row["kind"]), **_numbers(row)})
        except (ValueError, TypeError, KeyError):
            problems.append(f"{path.name} holds a line that is not whole")
    return found


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value) for key, value in row.items()
        if key not in ("step", "kind") and isinstance(value, int | float) and math.isfinite(value)
    }


def _points(rows: Iterable[Mapping[str, Any]], kind: str, key: str) -> Points:
    return [(row["step"], row[key]) for row in rows if row["kind"] == kind and key in row]


def _cards(metrics: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]) -> str:
    evals = [row for row in metrics if row["kind"] == "eval" and "solve_rate" in row]
    cards = []
    for row in [evals[0], evals[-1]] if len(evals) > 1 else evals:
        valid = row.get("episodes", 0.0) * (1 - row.get("invalid_share", 0.0))
        low, high = wilson(row["solve_rate"], valid)
        cards.append((f"{row['solve_rate']:.3f}", f"held-out solve rate after {row['step']} updates "
                                                  f"({low:.3f}–{high:.3f}, {valid:.0f} episodes)"))
    played = [row for row in metrics if "episodes" in row]
    count = math.fsum(row["episodes"] for row in played)
    invalid = math.fsum(row["episodes"] * row.get("invalid_share", 0.0) for row in played)
    spent = math.fsum(value for row in times for key, value in row.items() if key.startswith("seconds/"))
    cards += [(f"{count:.0f}", "verified episodes"), (f"{invalid:.0f}", "invalid ones, never a score"),
              (f"{sum(row['kind'] == 'train' for row in metrics)}", "training steps"), (f"{spent / 60:.1f}", "minutes")]
    return "<div class=cards>" + "".join(
        f"<div class=card><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in cards
    ) + "</div>"


def _curves(metrics: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]) -> str:
    solve = {"held out": _points(metrics, "eval", "solve_rate"), "training": _points(metrics, "train", "solve_rate")}
    terms = sorted({key for row in metrics if row["kind"] == "train" for key in row if key.startswith("reward/")})
    rewards = {"reward": _points(metrics, "train", "reward_mean")}
    rewards |= {key.removeprefix("reward/"): _points(metrics, "train", key) for key in terms}
    stages = sorted({key for row in times for key in row if key.startswith("seconds/")})
    made = [lines("Solve rate", solve, 0.0), lines("Mean reward and its terms", rewards)]
    made += [
        lines(title, {label: _points(metrics, kind, key) for key, label in keys.items()}, floor)
        for title, kind, keys, floor in CURVES
    ]
    made.append(stacked("Seconds by stage", {s.removeprefix("seconds/"): _points(times, "train", s) for s in stages}))
    return "".join(made)


def _sample(sample: Sample) -> str:
    sealed = sample.sealed
    trajectory = sealed.trajectory
    outcome = sealed.outcome.value
    reward = "" if sealed.reward is None else f", reward {number(sealed.reward.value)}"
    terms = {} if sealed.reward is None else sealed.reward.terms
    rows = "".join(f"<tr><td>{escape(name)}<td>{escape(value)}" for name, value in sorted(terms.items()))
    messages = [*trajectory.prompt, *(m for s in trajectory.steps for m in (s.turn.message, *s.observations))]
    return (
        f"<details><summary>{escape(sample.when)} · {_shown(trajectory.episode.row)} · <b class={outcome}>{outcome}</b>"
        f"{escape(reward)}</summary>{''.join(map(_message, messages))}<p>{_shown(sealed.reason)}</p>"
        f"<table>{rows}</table></details>"
    )


def _message(message: Message) -> str:
    calls = "".join(f"<pre>{_shown(call.name)} {_shown(call.arguments)}</pre>" for call in message.calls)
    words = f"<pre>{_shown(message.content)}</pre>" if message.content else ""
    return f"<div class=role>{escape(message.role)}</div>{words}{calls}"


def _shown(text: str) -> str:
    """Text of an agent's, cut, its control characters spelled out, and harmless in a page."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]} … {len(text) - SHOWN} more characters"
    return escape(printable(cut))


def _text(path: Path) -> str:
    return escape(printable(path.read_text(encoding="utf-8", errors="replace"))) if path.is_file() else "missing"


def _links(folder: Path) -> str:
    names = ("metrics.jsonl", "times.jsonl", "summary.json", "plan.json", "rollouts", "checkpoints", "tensorboard")
    there = [name for name in names if (folder / name).exists()]
    return "<p class=sub>Beside this page: " + ", ".join(f'<a href="{name}">{name}</a>' for name in there) + "</p>"
