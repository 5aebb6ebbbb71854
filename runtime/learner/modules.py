"""What Megatron-core's local layers lack: RMSNorm under sequence parallelism, SDPA attention, less memory traffic."""

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
        if x.is_cuda or x.dtype != torch.float32:
            return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        out: Tensor = _Norm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return out


class _Norm(torch.autograd.Function):
    """RMSNorm on CPUs, where torch composes it of elementwise operations: about half the passes over memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[override]
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return torch.mul(x, inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        x, weight, inverse = ctx.saved_tensors
        # With r = inverse: dw = sum r g x, dx = r (g w) - x r^3 mean(g w x).
        products = torch.mul(grad, x)
        of_weight = products.reshape(-1, x.shape[-1]).t() @ inverse.reshape(-1)
        pull = (products @ weight).unsqueeze(-1).mul_(inverse.pow(3)).div_(-x.shape[-1])
        return torch.mul(grad, weight).mul_(inverse).addcmul_(x, pull), of_weight, None


class Rotary:
    """Rotary positions (Su et al., RoFormer, 2021) of one rank's columns; all layers share the last table made."""

    def __init__(self, frequencies: Tensor) -> None:
        self.frequencies = frequencies
        self._key: tuple[object, ...] = ()
        self._table: tuple[Tensor, Tensor] | None = None

    def table(self, local: int, ranks: int, rank: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, [local, head_dim / 2] each."""
        key = (local, ranks, rank, like.device, like.dtype)
        if self._table is None or key != self._key:
            at = zigzag(local, ranks, rank) if ranks > 1 else torch.arange(local)
            angles = torch.outer(at.float(), self.frequencies)
            self._key = key
            self._table = (angles.cos().to(like), angles.sin().to(like))
        return self._table

    def turn(self, x: Tensor, ranks: int, rank: int) -> Tensor:
        """[positions, rows, heads, head_dim] to [rows, heads, positions, head_dim], turned by position."""
        out: Tensor = _Turn.apply(x, *self.table(x.shape[0], ranks, rank, x))  # type: ignore[no-untyped-call]
        return out


class _Turn(torch.autograd.Function):
    """A rotation in two passes over memory, into the layout that attention reads; its backward turns back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(cos, sin)
        x = x.permute(1, 2, 0, 3)
        return _turned(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        rows, heads, positions, width = grad.shape
        out = torch.empty((positions, rows, heads, width), dtype=grad.dtype, device=grad.device)
        _turned(grad, out.permute(1, 2, 0, 3), cos, -sin)
        return out, None, None


def _turned(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    (a, b), (to_a, to_b) = x.chunk(2, -1), out.chunk(2, -1)
    torch.mul(a, cos, out=to_a).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=to_b).addcmul_(a, sin)
    return out


class CausalAttention(torch.nn.Module):
    """Rotary positions and causal attention by torch's SDPA; inputs are [positions, rows, heads, head_dim].

    Sequences are padded on the right, so that no mask but the causal one is needed. Under context parallelism each
    rank holds two chunks of the sequence (zig-zag, r and 2n-1-r) and gathers all keys and values.
    """

    def __init__(self, config: Any, *, rotary: Rotary, pg_collection: Any = None, **options: Any) -> None:
        super().__init__()
        self.group = pg_collection.cp if config.context_parallel_size > 1 else None
        self.scale = options.get("softmax_scale")
        self.rotary = rotary

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """[positions, rows, heads * head_dim]."""
        local, rows = query.shape[:2]
        ranks, rank = (self.group.size(), self.group.rank()) if self.group is not None else (1, 0)
        q, k, v = self.rotary.turn(query, ranks, rank), self.rotary.turn(key, ranks, rank), value.permute(1, 2, 0, 3)
        mask = None
        if ranks > 1:
            mask = visible(local, ranks, rank, query.device)
            k, v = self._gather(k), self._gather(v)
        out = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        return out.permute(2, 0, 1, 3).reshape(local, rows, -1)

    def _gather(self, part: Tensor) -> Tensor:
        from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

        # Along the first dimension. Its backward sums over the ranks, since each rank's queries look at every key.
        gathered: Tensor = gather_from_sequence_parallel_region(
            part.permute(2, 0, 1, 3).contiguous(), tensor_parallel_output_grad=True, group=self.group
        )
        return gathered.permute(1, 2, 0, 3)


class _Gated(torch.autograd.Function):
    """silu(gate) * up of [gate; up], whose backward writes one gradient instead of joining two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        gate, up = x.chunk(2, -1)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        gate, up = x.chunk(2, -1)
        out = torch.empty_like(x)
        of_gate, of_up = out.chunk(2, -1)
        torch.ops.aten.silu_backward.grad_input(torch.mul(grad, up), gate, grad_input=of_gate)
        torch.mul(functional.silu(gate), grad, out=of_up)
        return out


class SwiGLU(torch.nn.Module):
    """silu(gate) * up, [..., 2 ffn] to [..., ffn] (Shazeer, "GLU variants improve transformer", 2020)."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """The product of the two halves."""
        out: Tensor = _Gated.apply(x)  # type: ignore[no-untyped-call]
        return out

    def sharded_state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Nothing to keep; Megatron-core asks every part of its MLP."""
        return {}


def zigzag(local: int, ranks: int, rank: int, device: torch.device | None = None) -> Tensor:
    """Global positions of one context-parallel rank's `local` positions: chunks `rank` and `2 * ranks - 1 - rank`."""
    half = local // 2
    first, last = rank * half, (2 * ranks - 1 - rank) * half
    return torch.cat([torch.arange(begin, begin + half, device=device) for begin in (first, last)])


def visible(local: int, ranks: int, rank: int, device: torch.device) -> Tensor:
    """[local, local * ranks] bool: which gathered keys each local query may look at."""
    keys = torch.cat([zigzag(local, ranks, each, device) for each in range(ranks)])
    return keys[None, :] <= zigzag(local, ranks, rank, device)[:, None]
