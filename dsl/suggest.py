"""Guesses at what a mistyped word was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 64


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to a word, or None if none is near; ties go to the first in order of names."""
    if not word or len(word) > _LONGEST:
        return None
    limit = 1 if len(word) < 5 else 2 if len(word) < 9 else 3
    best: tuple[int, str] | None = None
    for candidate in sorted(set(candidates)):
        if candidate == word or abs(len(candidate) - len(word)) > limit:
            continue
        steps = 0 if candidate.lower() == word.lower() else distance(word.lower(), candidate.lower())
        if steps <= min(limit, max(len(word), len(candidate)) - 1) and (best is None or (steps, candidate) < best):
            best = (steps, candidate)
    return best[1] if best else None


def distance(a: str, b: str) -> int:
    """Damerau-Levenshtein distance: insertions, deletions, substitutions and swaps of neighbours."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row = row, [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = previous
    return row[-1]
