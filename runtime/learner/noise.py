"""The sampler's randomness: uniforms that belong to a turn, and the choice of an id by inverse CDF."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_BLOCK = 128
_WORD = 2**64 - 1


class Noise:
    """Uniforms in [0, 1) of the live rows of a batch, from Philox keyed by (seed, turn): position p uses draw p.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), in numpy's implementation.
    """

    def __init__(self, keys: Sequence[tuple[int, int]], device: torch.device) -> None:
        self._rows = [
            np.random.Generator(np.random.Philox(key=np.array([seed & _WORD, turn & _WORD], dtype=np.uint64)))
            for seed, turn in keys
        ]
        self._device = device
        self._at = _BLOCK
        self._block = torch.empty(0)

    def draw(self) -> Tensor:
        """The next uniform of every row, shape [rows, 1], float64."""
        if self._at == _BLOCK:
            # Below 1 by two steps of rounding, so that u * total < total even where the CDF's total is not quite 1.
            block = np.stack([row.random(_BLOCK) for row in self._rows]) * (1 - 2.0**-52)
            self._block, self._at = torch.from_numpy(block).to(self._device), 0
        self._at += 1
        return self._block[:, self._at - 1 : self._at]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only, in this order."""
        self._rows = [self._rows[row] for row in rows]
        self._block = self._block[torch.tensor(rows, device=self._device)] if self._at < _BLOCK else self._block


def uniforms(seed: int, turn: int, count: int) -> list[float]:
    """The first `count` uniforms of a turn, as the sampler uses them."""
    noise = Noise([(seed, turn)], torch.device("cpu"))
    return [float(noise.draw()) for _ in range(count)]


class Choice:
    """How the rows of a batch choose: a temperature, a nucleus and noise each."""

    def __init__(
        self, temperatures: Sequence[float], nuclei: Sequence[float], keys: Sequence[tuple[int, int]],
        device: torch.device,
    ) -> None:
        self._temperatures, self._nuclei, self._device = list(temperatures), list(nuclei), device
        self._noise = Noise(keys, device)
        self._settle()

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only, in this order."""
        self._temperatures = [self._temperatures[row] for row in rows]
        self._nuclei = [self._nuclei[row] for row in rows]
        self._noise.keep(rows)
        self._settle()

    def _settle(self) -> None:
        """What the token loop need not ask again for every token."""
        warm = [value if value > 0 else 1.0 for value in self._temperatures]
        greedy = [value == 0 for value in self._temperatures]
        device = self._device
        self._scale = torch.tensor(warm, device=device)[:, None] if any(value != 1 for value in warm) else None
        self._all_greedy = all(greedy)
        self._greedy = torch.tensor(greedy, device=device)[:, None] if any(greedy) else None
        cut = any(value < 1 for value in self._nuclei)
        self._nucleus = torch.tensor(self._nuclei, dtype=torch.float64, device=device)[:, None] if cut else None

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and their log-probabilities before the nucleus cuts, both [rows, 1], of fp32 logits [rows, vocab].

        The id is the first whose cumulative probability, in id order and float64, exceeds the row's uniform.
        """
        if self._scale is not None:
            # From the largest down: a temperature near 0 must not overflow.
            logits = (logits - logits.amax(-1, keepdim=True)) / self._scale
        logprobs = torch.log_softmax(logits, -1)
        if self._all_greedy:
            ids = logprobs.argmax(-1, keepdim=True)
            return ids, logprobs.gather(1, ids)
        weights = logprobs.double().exp_()
        if self._nucleus is not None:
            weights = _cut(weights, self._nucleus)
        cumulative = weights.cumsum(-1)
        ids = torch.searchsorted(cumulative, self._noise.draw() * cumulative[:, -1:], right=True)
        # Only where the logits are not numbers; the sampler reports that by the log-probability.
        ids = ids.clamp_(max=logits.shape[1] - 1)
        if self._greedy is not None:
            ids = torch.where(self._greedy, logits.argmax(-1, keepdim=True), ids)
        return ids, logprobs.gather(1, ids)


def _cut(weights: Tensor, nucleus: Tensor) -> Tensor:
    """Zero all but the smallest set of likeliest ids that holds `nucleus` of the probability (ties: lower id first).

    Source: Holtzman et al., "The curious case of neural text degeneration" (2020), section 3.1.
    """
    ordered, order = weights.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    dropped = (before >= nucleus) & (nucleus < 1)
    dropped[:, 0] = False
    return weights.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), 0.0)
