"""The two modules that Megatron-core's local layers lack: an RMSNorm under sequence parallelism, and SDPA attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class RMSNorm(torch.nn.Module):
    """Root-mean-square norm whose weight's gradient is summed over sequence-parallel ranks.

    Megatron's own wrapper refuses sequence parallelism outside Transformer Engine.
    """

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class CausalAttention(torch.nn.Module):
    """Causal attention on torch's scaled dot product; queries and keys are [positions, rows, heads, head_dim].

    Sequences are padded on the right, so that no mask but the causal one is needed. Under context parallelism each
    rank holds two chunks of the sequence (zig-zag, r and 2n-1-r) and gathers all keys and values.
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        softmax_scale: float | None = None,
        pg_collection: Any = None,
        **_: Any,
    ) -> None:
        super().__init__()
        self.group = pg_collection.cp if config.context_parallel_size > 1 else None
        self.scale = softmax_scale

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """[positions, rows, heads * head_dim]."""
        mask = None
        if self.group is not None:
            mask = visible(query.shape[0], self.group.size(), self.group.rank(), query.device)
            key, value = (self._gather(each) for each in (key, value))
        q, k, v = (each.permute(1, 2, 0, 3) for each in (query, key, value))
        out = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        return out.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)

    def _gather(self, part: Tensor) -> Tensor:
        from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

        # Its backward sums over the ranks, since each rank's queries look at every key.
        gathered: Tensor = gather_from_sequence_parallel_region(
            part, tensor_parallel_output_grad=True, group=self.group
        )
        return gathered


def zigzag(local: int, ranks: int, rank: int, device: torch.device | None = None) -> Tensor:
    """Global positions of one context-parallel rank's `local` positions: chunks `rank` and `2 * ranks - 1 - rank`."""
    half = local // 2
    first, last = rank * half, (2 * ranks - 1 - rank) * half
    return torch.cat([torch.arange(begin, begin + half, device=device) for begin in (first, last)])


def visible(local: int, ranks: int, rank: int, device: torch.device) -> Tensor:
    """[local, local * ranks] bool: which gathered keys each local query may look at."""
    keys = torch.cat([zigzag(local, ranks, each, device) for each in range(ranks)])
    return keys[None, :] <= zigzag(local, ranks, rank, device)[:, None]
