"""Attention over the cache: one new id for every row, or spans of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from guerdon.runtime.learner.shape import ModelShape

_BUCKET = 8


class StepAttention:
    """One new id a row, row r in slot r: the mask and the views of the cache live over a bucket of lengths."""

    def __init__(self, shape: ModelShape, planes: Sequence[Tensor], lengths: Sequence[int]) -> None:
        """`lengths` are the ids that each row's cache holds already."""
        first, rows, longest = planes[0], len(lengths), max(lengths)
        device = first.device
        # A little ahead, so that the views serve the next ids too: to attend over a few masked keys costs less.
        span = min(longest + _BUCKET, first.shape[3])
        self._left = span - longest
        self._scale = shape.head_dim**-0.5
        self._rows, self.positions = torch.arange(rows, device=device), torch.tensor(lengths, device=device)
        unseen = torch.arange(span, device=device) >= self.positions[:, None]
        mask = torch.zeros(unseen.shape, dtype=first.dtype, device=device).masked_fill_(unseen, -math.inf)
        self._mask = mask[:, None].repeat(1, shape.kv_heads, 1)
        self._wide = self._mask.view(-1, 1, span)
        self._writes = [by_position(plane) for plane in planes]
        heads = [plane[:rows, :, :, :span].flatten(0, 1) for plane in planes]
        self._keys = [head[:, 0].transpose(1, 2) for head in heads]
        self._values = [head[:, 1] for head in heads]

    def open(self) -> bool:
        """Take the next position into view; False where the bucket is used up and a new one must be built."""
        if self._left == 0:
            return False
        self._left -= 1
        self._mask[self._rows, :, self.positions] = 0.0
        return True

    def close(self) -> None:
        """The position is done."""
        self.positions += 1

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        rows, group = qkv.shape[0], qkv.shape[2] - 2
        self._writes[layer].index_put_((self._rows, self.positions), qkv[:, :, group:])
        # Two products over the heads of all rows: for one query a head, faster than the fused attention (CPU).
        queries = qkv[:, :, :group].reshape(-1, group, qkv.shape[3])
        scores = torch.baddbmm(self._wide, queries, self._keys[layer], alpha=self._scale)
        return torch.bmm(scores.softmax(-1), self._values[layer]).view(rows, -1)


def by_position(plane: Tensor) -> Tensor:
    """A layer's cache as [slots, capacity, kv_heads, 2, head_dim]: where a position's keys and values go."""
    return plane.permute(0, 3, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class Span:
    """Ids start..end of one row's prefix."""

    row: int
    start: int
    end: int


class SpanAttention:
    """Several new ids a row, rows in neighbouring slots: dense layers see them packed, attention sees them padded."""

    def __init__(self, shape: ModelShape, planes: Sequence[Tensor], spans: Sequence[Span]) -> None:
        self._planes, self._shape = planes, shape
        first, last = spans[0].row, spans[-1].row + 1
        device, dtype = planes[0].device, planes[0].dtype
        self._slots = slice(first, last)
        self._width = max(span.end - span.start for span in spans)
        self._span = max(span.end for span in spans)
        starts = torch.tensor([span.start for span in spans], device=device)[:, None]
        ends = torch.tensor([span.end for span in spans], device=device)[:, None]
        grid = starts + torch.arange(self._width, device=device)
        real = grid < ends
        self._flat = real.flatten().nonzero()[:, 0]
        self.positions = grid.flatten()[self._flat]
        self._rows = (self._flat // self._width) + first
        # A padded query sees the keys that the row's last one sees: its result is dropped, and it is never empty.
        unseen = torch.arange(self._span, device=device) > torch.minimum(grid, ends - 1)[:, :, None]
        mask = torch.zeros(unseen.shape, dtype=dtype, device=device).masked_fill_(unseen, -math.inf)
        self._mask = mask[:, None].repeat_interleave(shape.heads // shape.kv_heads, 2)
        self._full = bool(real.all())

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        shape, group = self._shape, self._shape.heads // self._shape.kv_heads
        rows, tokens = self._slots.stop - self._slots.start, qkv.shape[0]
        plane = self._planes[layer]
        by_position(plane).index_put_((self._rows, self.positions), qkv[:, :, group:])
        keys, values = plane[self._slots, :, :, : self._span].unbind(2)
        queries = qkv[:, :, :group].reshape(tokens, -1)
        if not self._full:
            queries = queries.new_zeros(rows * self._width, queries.shape[1]).index_copy_(0, self._flat, queries)
        grid = (rows, self._width, shape.kv_heads, group, shape.head_dim)
        folded = queries.view(grid).transpose(1, 2).reshape(rows, shape.kv_heads, -1, shape.head_dim)
        mixed = F.scaled_dot_product_attention(folded, keys, values, attn_mask=self._mask)
        mixed = mixed.reshape(rows, shape.kv_heads, self._width, group, shape.head_dim).transpose(1, 2)
        packed = mixed.reshape(rows * self._width, -1)
        return packed if self._full else packed.index_select(0, self._flat)
