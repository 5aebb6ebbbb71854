"""A training run as one page: headline, curves, a few trajectories to read; no script, nothing from outside."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from guerdon.runtime.report.charts import Points, Span, lines, stacked
from guerdon.runtime.report.progress import printable
from guerdon.runtime.report.trajectories import Sample, shown, trajectories

FILE = "report.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load or run: nothing but the page's own style. The texts are escaped; this is the second lock."""
LARGEST = 1e100
"""Numbers beyond it are not drawn: their differences would be none that a float can hold."""
ABOUT = "The first held-out rows, not chosen by their outcome: the first evaluation left, the last one right."
ANY: Span = (None, None)
ZERO: Span = (0.0, None)
UNIT: Span = (0.0, 1.0)
CURVES = (
    ("Loss of the supervised start", "nats a token", "warm", {"loss": "loss"}, ANY),
    ("Held-out demonstrations", "mean likelihood", "warm", {"likelihood": "likelihood"}, UNIT),
    ("Loss", "", "train", {"loss": "loss"}, ANY),
    ("Entropy", "nats a token", "train", {"entropy": "policy"}, ZERO),
    ("KL", "nats a token", "train", {"kl": "policy to sampler", "kl_reference": "policy to reference"}, ANY),
    ("Clipped tokens", "share of tokens", "train", {"clip_share": "clipped"}, ZERO),
    ("Gradient norm", "before clipping", "train", {"grad_norm": "gradient norm"}, ZERO),
    ("Groups", "groups a step", "train", {"zero_variance_groups": "all rewards equal", "trained_groups": "trained",
                                          "small_groups": "too few valid episodes"}, ZERO),
    ("Episodes", "mean an episode", "train", {"episode/turns": "turns", "episode/tool_calls": "tool calls",
                                              "episode/malformed_calls": "malformed calls"}, ZERO),
    ("Invalid episodes", "share of episodes", "train", {"invalid_share": "invalid"}, ZERO),
)
"""Title, what is counted upwards, kind of line, its numbers and their labels, what the axis must reach."""


def write_report(folder: Path, samples: Sequence[Sample] = (), troubles: Sequence[str] = ()) -> Path:
    """Write `report.html` from what a training run has left in its folder so far; the same files, the same bytes.

    `samples` are trajectories to read, `troubles` what their reader has to say. Missing or torn files are named in the
    page. Raises OSError where the folder cannot be written.
    """
    problems = list(troubles)
    metrics, times = _rows(folder / "metrics.jsonl", problems), _rows(folder / "times.jsonl", problems)
    plan, config = _text(folder / "plan.digest", problems), _text(folder / "config.yaml", problems)
    name = shown(folder.resolve().name)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{name}</title><style>{_style()}</style>",
        f"<h1>{name}</h1><p class=sub>a training run of guerdon{plan and f', plan <code>{plan.strip()}</code>'}</p>",
        *(f"<p class=note>{shown(problem)}</p>" for problem in problems),
        _cards(metrics, times), "<h2>Curves</h2><div class=charts>", _curves(metrics, times), "</div>",
        f"<h2>Trajectories</h2><p class=sub>{ABOUT}</p>{trajectories(samples)}" if samples else "",
        f"<h2>Configuration</h2><details><summary>config.yaml</summary><pre>{config}</pre></details>" if config else "",
        _links(folder), "</html>",
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
    found, torn = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found.append({"step": _step(row["step"]), "kind": str(row["kind"]), **_numbers(row)})
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            torn += 1
    if torn:
        what = "a line that is not whole" if torn == 1 else f"{torn} lines that are not whole"
        problems.append(f"{path.name} holds {what}, left out here")
    return found


def _step(value: object) -> int:
    if not isinstance(value, int) or abs(value) > 10**12:
        raise ValueError("no number of a step")
    return value


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value) for key, value in row.items()
        if key not in ("step", "kind") and isinstance(value, int | float) and abs(value) <= LARGEST
    }


def _points(rows: Iterable[Mapping[str, Any]], kind: str, key: str) -> Points:
    return [(row["step"], row[key]) for row in rows if row["kind"] == kind and key in row]


def _cards(metrics: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]) -> str:
    played = [row for row in metrics if "episodes" in row]
    count = math.fsum(row["episodes"] for row in played)
    invalid = math.fsum(row["episodes"] * row.get("invalid_share", 0.0) for row in played)
    spent = math.fsum(value for row in times for key, value in row.items() if key.startswith("seconds/"))
    share = f" ({invalid / count:.2%})" if count else ""
    cards = [*_headline(_evals(metrics)), (f"{sum(row['kind'] == 'train' for row in metrics)}", "training steps"),
             (f"{count:.0f}", "verified episodes"), (f"{invalid:.0f}", f"invalid ones{share}, never a score"),
             (f"{spent / 60:.1f}", "minutes")]
    return "<div class=cards>" + "".join(
        f"<div class=card><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in cards
    ) + "</div>"


def _evals(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in metrics if row["kind"] == "eval" and 0.0 <= row.get("solve_rate", -1.0) <= 1.0]


def _interval(row: Mapping[str, Any]) -> tuple[float, float, float]:
    """The 95% interval of an evaluation's solve rate, and how many valid episodes it is of."""
    valid = row.get("episodes", 0.0) * (1 - row.get("invalid_share", 0.0))
    return *wilson(row["solve_rate"], valid), valid


def _headline(evals: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Solve rate before → after, with the interval of each."""
    ends = [*evals[:1], *evals[1:][-1:]]
    said = []
    for row in ends:
        low, high, valid = _interval(row)
        said.append(f"after {row['step']} updates ({low:.3f}–{high:.3f}, {valid:.0f} episodes)")
    value = " → ".join(f"{row['solve_rate']:.3f}" for row in ends)
    return [(value, "held-out solve rate " + " and ".join(said))] if ends else []


def _curves(metrics: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]) -> str:
    solve = {"held out": _points(metrics, "eval", "solve_rate"), "training": _points(metrics, "train", "solve_rate")}
    spans = {row["step"]: _interval(row)[:2] for row in _evals(metrics)}
    terms = sorted({key for row in metrics if row["kind"] == "train" for key in row if key.startswith("reward/")})
    rewards = {"reward": _points(metrics, "train", "reward_mean")}
    rewards |= {key.removeprefix("reward/"): _points(metrics, "train", key) for key in terms}
    stages = sorted({key for row in times for key in row if key.startswith("seconds/")})
    made = [lines("Solve rate, with 95% intervals", solve, UNIT, {"held out": spans}, "share of valid episodes"),
            lines("Reward and its terms", rewards, ANY, unit="mean an episode")]
    made += [
        lines(title, {label: _points(metrics, kind, key) for key, label in keys.items()}, span, unit=unit)
        for title, unit, kind, keys, span in CURVES
    ]
    made.append(stacked("Seconds by stage", {s.removeprefix("seconds/"): _spent(times, s) for s in stages}, "s"))
    return "".join(made)


def _spent(times: Iterable[Mapping[str, Any]], key: str) -> Points:
    """Seconds of a stage by step, whether it was spent on training or on an evaluation after it."""
    found: dict[float, float] = {}
    for row in times:
        if key in row:
            found[row["step"]] = found.get(row["step"], 0.0) + row[key]
    return list(found.items())


def _text(path: Path, problems: list[str]) -> str:
    if not path.is_file():
        problems.append(f"{path.name} is missing")
        return ""
    return escape(printable(path.read_text(encoding="utf-8", errors="replace")))


def _links(folder: Path) -> str:
    names = ("metrics.jsonl", "times.jsonl", "summary.json", "config.yaml", "plan.json", "rollouts", "checkpoints",
             "tensorboard")
    there = [name for name in names if (folder / name).exists()]
    return "<p class=sub>Beside this page: " + ", ".join(f'<a href="{name}">{name}</a>' for name in there) + "</p>"
