"""Line charts and stacked bars as inline SVG: axes, labels, a title on hover, no script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
Span = tuple[float | None, float | None]
"""What an axis must reach from and to, whatever the numbers are; None for as far as they go."""
COLOURS = ("#3b6fd4", "#d9622b", "#2a9d63", "#8a4fbf", "#b8860b", "#c2385a", "#4aa3b8", "#777777")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 230, 56, 14, 24, 34
DOTS = 120
"""With more points than this a line has no dots, and of its titles so many are left."""
COLUMNS = 400
"""A line of more than twice as many points is drawn by the lowest and the highest of each column."""


def number(value: float) -> str:
    """A number as people read it."""
    return f"{value:.4g}".replace("-", "−")


def ticks(low: float, high: float, count: int = 5, least: float = 0.0) -> list[float]:
    """Round numbers that lie in a range, `least` or more apart."""
    if not high > low:
        return [low]
    rough = max((high - low) / max(1, count - 1), least)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999 and size * m != least * 2.5)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Frame:
    """Where numbers lie on the paper."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], span: Span = (None, None)) -> None:
        self.x0, self.x1 = min(xs), max(xs)
        floor, roof = span
        low = min(ys) if floor is None else min(floor, *ys)
        high = max(ys) if roof is None else max(roof, *ys)
        pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        self.y0, self.y1 = (low if low == floor else low - pad), (high if high == roof else high + pad)
        if self.x1 == self.x0:
            self.x0, self.x1 = self.x0 - 0.5, self.x1 + 0.5

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def axes(self, unit: str) -> list[str]:
        """Grid, ticks with their numbers, and what is counted along each axis."""
        made = []
        for value in ticks(self.y0, self.y1):
            y = f"{self.y(value):.1f}"
            made.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
                        f'<text x="{LEFT - 6}" y="{y}" dy="4" text-anchor="end">{number(value)}</text>')
        for value in ticks(self.x0, self.x1, 6, 1.0):  # half a step there is not
            x = f"{self.x(value):.1f}"
            made.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{number(value)}</text>')
        made.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
        made.append(f'<text x="4" y="12">{escape(unit)}</text>')
        return made


def lines(
    title: str, series: Mapping[str, Points], span: Span = (None, None),
    whiskers: Mapping[str, Mapping[float, tuple[float, float]]] | None = None, unit: str = "",
) -> str:
    """A figure with one line a series and, by step, from where to where its whiskers go; "" with nothing to draw."""
    kept = {name: points for name, points in series.items() if points}
    if not kept:
        return ""
    reach = {name: whiskers[name] for name in kept if whiskers and name in whiskers}
    xs = [x for points in kept.values() for x, _ in points]
    ys = [y for points in kept.values() for _, y in points]
    frame = Frame(
        [*xs, *(x for one in reach.values() for x in one)],
        [*ys, *(y for one in reach.values() for ends in one.values() for y in ends)], span,
    )
    parts = frame.axes(unit)
    for colour, (name, points) in zip(_colours(len(kept)), kept.items(), strict=True):
        parts += [
            f'<line stroke="{colour}" stroke-opacity=".45" stroke-width="5" x1="{frame.x(x):.1f}" '
            f'x2="{frame.x(x):.1f}" y1="{frame.y(low):.1f}" y2="{frame.y(high):.1f}"/>'
            for x, (low, high) in reach.get(name, {}).items()
        ]
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in _thinned(points))
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
        parts += _dots(frame, colour, name, points)
    return _figure(title, parts, list(kept))


def _dots(frame: Frame, colour: str, name: str, points: Points) -> Iterator[str]:
    every = math.ceil(len(points) / DOTS)
    look = f'fill="{colour}"' if every == 1 else 'fill-opacity="0"'
    for x, y in points[::every]:
        yield (f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="{2.6 if every == 1 else 4}" {look}>'
               f"<title>{escape(name)}, step {number(x)}: {number(y)}</title></circle>")


def _thinned(points: Points) -> Points:
    """Few enough points to draw; no peak is lost."""
    size = math.ceil(len(points) / COLUMNS)
    if size <= 2:
        return points
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        column = range(start, min(start + size, len(points)))
        ends = {min(column, key=lambda i: points[i][1]), max(column, key=lambda i: points[i][1])}
        kept += [points[i] for i in sorted(ends)]
    return kept


def stacked(title: str, series: Mapping[str, Points], unit: str = "") -> str:
    """A figure of bars, one a step, made of the series' parts; "" where there is nothing to draw."""
    kept = {name: dict(points) for name, points in series.items() if points}
    steps = sorted({x for points in kept.values() for x in points})
    if not steps:
        return ""
    totals = [math.fsum(points.get(step, 0.0) for points in kept.values()) for step in steps]
    frame = Frame([steps[0] - 0.5, steps[-1] + 0.5], totals, (0.0, None))
    width = max(1.0, (WIDTH - LEFT - RIGHT) / (steps[-1] - steps[0] + 1) * 0.8)
    parts = frame.axes(unit)
    base = dict.fromkeys(steps, 0.0)
    for colour, (name, points) in zip(_colours(len(kept)), kept.items(), strict=True):
        for step in steps:
            spent = points.get(step, 0.0)
            top = frame.y(base[step] + spent)
            parts.append(
                f'<rect x="{frame.x(step) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{max(0.0, frame.y(base[step]) - top):.1f}" fill="{colour}">'
                f"<title>{escape(name)}, step {number(step)}: {number(spent)} {escape(unit)}</title></rect>"
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
