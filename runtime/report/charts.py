"""Line charts and stacked bars as inline SVG: axes, labels, a title on hover, no script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
COLOURS = ("#3b6fd4", "#d9622b", "#2a9d63", "#8a4fbf", "#b8860b", "#c2385a", "#4aa3b8", "#777777")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 220, 52, 12, 14, 30


def number(value: float) -> str:
    """A number as people read it."""
    return f"{value:.4g}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Frame:
    """Where numbers lie on the paper."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], floor: float | None = None) -> None:
        self.x0, self.x1 = min(xs), max(xs)
        low, high = min(ys), max(ys)
        low = min(low, floor) if floor is not None else low
        pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        self.y0, self.y1 = (low if floor is not None and low == floor else low - pad), high + pad
        if self.x1 == self.x0:
            self.x0, self.x1 = self.x0 - 0.5, self.x1 + 0.5

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def axes(self) -> list[str]:
        """Grid, ticks and their numbers."""
        made = []
        for value in ticks(self.y0, self.y1):
            y = f"{self.y(value):.1f}"
            made.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
                        f'<text x="{LEFT - 6}" y="{y}" dy="4" text-anchor="end">{number(value)}</text>')
        for value in ticks(self.x0, self.x1):
            x = f"{self.x(value):.1f}"
            made.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{number(value)}</text>')
        made.append(f'<text class="axis" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 2}" text-anchor="middle">step</text>')
        return made


def lines(title: str, series: Mapping[str, Points], floor: float | None = None) -> str:
    """A figure with one line a series; "" where there is nothing to draw."""
    kept = {name: points for name, points in series.items() if points}
    if not kept:
        return ""
    frame = Frame([x for p in kept.values() for x, _ in p], [y for p in kept.values() for _, y in p], floor)
    parts = frame.axes()
    for colour, (name, points) in zip(_colours(len(kept)), kept.items(), strict=True):
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{path}"/>')
        parts += [
            f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2.6" fill="{colour}">'
            f"<title>{escape(name)}, step {number(x)}: {number(y)}</title></circle>"
            for x, y in points
        ]
    return _figure(title, parts, list(kept))


def stacked(title: str, series: Mapping[str, Points]) -> str:
    """A figure of bars, one a step, made of the series' parts; "" where there is nothing to draw."""
    kept = {name: dict(points) for name, points in series.items() if points}
    steps = sorted({x for points in kept.values() for x in points})
    if not steps:
        return ""
    totals = [math.fsum(points.get(step, 0.0) for points in kept.values()) for step in steps]
    frame = Frame([steps[0] - 0.5, steps[-1] + 0.5], totals, floor=0.0)
    width = max(1.0, (WIDTH - LEFT - RIGHT) / (steps[-1] - steps[0] + 1) * 0.8)
    parts = frame.axes()
    base = dict.fromkeys(steps, 0.0)
    for colour, (name, points) in zip(_colours(len(kept)), kept.items(), strict=True):
        for step in steps:
            spent = points.get(step, 0.0)
            top = frame.y(base[step] + spent)
            parts.append(
                f'<rect x="{frame.x(step) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{max(0.0, frame.y(base[step]) - top):.1f}" fill="{colour}">'
                f"<title>{escape(name)}, step {number(step)}: {number(spent)} s</title></rect>"
            )
            base[step] += spent
    return _figure(title, parts, list(kept))


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _figure(title: str, parts: Sequence[str], names: Sequence[str]) -> str:
    keys = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for colour, name in zip(_colours(len(names)), names, strict=True)
    )
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, quote=True)}">{"".join(parts)}</svg><div class="keys">{keys}</div></figure>'
    )
