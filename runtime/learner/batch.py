"""Rows to micro-batches: who takes which row, how wide, and which positions a context-parallel rank sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault, Row
from guerdon.runtime.learner.modules import zigzag
from guerdon.runtime.learner.shape import ModelShape, Parallel


@dataclass(frozen=True, slots=True)
class Share:
    """One micro-batch before it is tensors: indices of rows in the batch, and positions, padding counted."""

    rows: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one rank feeds its model, [rows, positions here] each.

    Position p holds id p of a row and is scored on id p + 1 (`labels`); all but `ids` are aligned with `labels`.
    """

    share: Share
    ids: Tensor
    labels: Tensor
    at: Tensor
    """[positions here]: the position in the sequence of each column."""
    mask: Tensor
    old: Tensor
    advantages: Tensor
    reference: Tensor | None
    coefficients: Tensor


def check(rows: Sequence[Row], shape: ModelShape) -> None:
    """Raises LearnerFault for a row that the model cannot take."""
    for index, row in enumerate(rows):
        size, problem = len(row.ids), ""
        if size < 1 or size > shape.context:
            problem = f"has {size} ids; the model takes 1 to {shape.context}"
        elif not {len(row.mask), len(row.logprobs), len(row.advantages), len(row.reference) or size} <= {size}:
            problem = "has a mask, log-probabilities, advantages or reference of another length than its ids"
        elif min(row.ids) < 0 or max(row.ids) >= shape.vocab:
            problem = f"has ids outside of the vocabulary of {shape.vocab}"
        elif row.mask[0]:
            problem = "trains its first id, which nothing predicts"
        if problem:
            raise LearnerFault(f"row {index} of the batch {problem}")


def multiple(parallel: Parallel) -> int:
    """What a width must be a multiple of: two chunks for each context rank, each shared by the sequence ranks."""
    return (2 * parallel.context if parallel.context > 1 else 1) * (parallel.tensor if parallel.sequence else 1)


def widths(rows: Sequence[Row], parallel: Parallel) -> list[int]:
    """Positions that each row needs: all ids but the last, rounded up."""
    step = multiple(parallel)
    return [max(step, -(-(len(row.ids) - 1) // step) * step) for row in rows]


def assign(sizes: Sequence[int], chosen: Sequence[int], ranks: int) -> list[list[int]]:
    """Rows `chosen`, in their order, each to the data-parallel rank with the fewest positions so far."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for index in chosen:
        rank = loads.index(min(loads))
        shares[rank].append(index)
        loads[rank] += sizes[index]
    return shares


def pack(sizes: Sequence[int], mine: Sequence[int], micro_tokens: int, least: int) -> list[Share]:
    """Micro-batches of one rank, rows in order, none above `micro_tokens` positions unless one row is.

    A pipeline of `least` stages gets at least as many micro-batches where there are rows enough. A rank without
    rows gets one of padding alone (no rows in `Share.rows`), since it takes part in every collective call.
    """
    limit = micro_tokens
    if least > 1:
        limit = min(limit, -(-sum(sizes[index] for index in mine) // least))
    found: list[Share] = []
    rows: list[int] = []
    for index in mine:
        wide = max([sizes[index], *(sizes[row] for row in rows)])
        if rows and wide * (len(rows) + 1) > limit:
            found.append(Share(tuple(rows), max(sizes[row] for row in rows)))
            rows = []
        rows.append(index)
    if rows:
        found.append(Share(tuple(rows), max(sizes[row] for row in rows)))
    return found or [Share((), min(sizes))]


def tensors(
    share: Share, rows: Sequence[Row], factors: Sequence[float], context: tuple[int, int], device: torch.device
) -> MicroBatch:
    """A micro-batch of one rank; `context` is (context-parallel ranks, this one)."""
    count, local = context[0], share.width // context[0]
    at = zigzag(local, *context) if count > 1 else torch.arange(share.width)
    columns = at.tolist()
    taken = [rows[index] for index in share.rows]

    def spread(values: Sequence[Sequence[float]], shift: int, kind: torch.dtype) -> Tensor:
        table = torch.zeros((max(1, len(taken)), share.width + 1), dtype=kind)
        for line, value in enumerate(values):
            table[line, : len(value)] = torch.tensor(value, dtype=kind)
        return table[:, [column + shift for column in columns]].to(device)

    real = torch.float32
    scale = torch.tensor([factors[index] for index in share.rows] or [0.0], dtype=real, device=device)
    return MicroBatch(
        share=share,
        ids=spread([row.ids for row in taken], 0, torch.long),
        labels=spread([row.ids for row in taken], 1, torch.long),
        at=at.to(device),
        mask=spread([row.mask for row in taken], 1, real),
        old=spread([row.logprobs for row in taken], 1, real),
        advantages=spread([row.advantages for row in taken], 1, real),
        reference=spread([row.reference for row in taken], 1, real) if any(r.reference for r in taken) else None,
        coefficients=scale[:, None],
    )
