"""How a trainable policy is sampled: token ids in, token ids and their log-probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one turn is sampled: `temperature` 0 takes the likeliest id; `stop` ids end a turn and belong to it."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to sample.

    `ids` is the whole prefix (what the session's cache holds already of it is not computed again). The noise is
    a function of (`seed`, `turn`, position in the turn) alone: it does not matter what else is in the batch.
    """

    session: str
    ids: tuple[int, ...]
    sampling: Sampling
    seed: int = 0
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sampled turn: ids, the log-probability of each under softmax(logits / temperature) before top-p cuts the
    tail (temperature 1 where it was 0), and the version of the weights. `stopped` is False where `max_tokens` or
    the model's longest context ended it."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    weights_version: int
    stopped: bool


class SamplerFault(Exception):
    """The sampler cannot answer (a dead rank, a prefix longer than the model's context): what, and the remedy."""


class Sampler(Protocol):
    """Batched decoding; one call is one batch of fixed composition, decoded in the order given."""

    async def generate(self, requests: Sequence[Request]) -> list[Sampled]:
        """One turn for each request. Raises SamplerFault."""
        ...

    async def forget(self, sessions: Sequence[str]) -> None:
        """Drop the caches of sessions that have ended; an unknown one is no error."""
        ...
