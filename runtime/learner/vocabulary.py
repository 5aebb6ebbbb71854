"""Log-probabilities and entropies over a vocabulary that is spread over tensor-parallel ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def padded(vocab: int, tensor_ranks: int) -> int:
    """Rows of the embedding: the vocabulary padded to a multiple of the tensor-parallel ranks."""
    return -(-vocab // tensor_ranks) * tensor_ranks


def score(
    logits: Tensor, targets: Tensor, vocab: int, temperature: float, group: Any, *, entropy_trains: bool
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of each distribution, under softmax(logits / temperature).

    `logits` is [..., vocab / ranks] and its memory is used up; `targets` is [...]. Ids at or above `vocab` (padding)
    have no probability. Both results are float32 [...] and the same on every rank of `group`; log-probabilities are
    differentiable, entropies where `entropy_trains`.
    """
    log_probs, entropy = _Score.apply(logits, targets, vocab, temperature, group, entropy_trains)  # type: ignore[no-untyped-call]
    return log_probs, entropy


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]  # noqa: PLR0917 - autograd passes them by position
        ctx: Any, logits: Tensor, targets: Tensor, vocab: int, temperature: float, group: Any, entropy_trains: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        width, alone = logits.shape[-1], group.size() == 1
        begin = width * group.rank()
        # The projection's backward does not look at its output, so its memory may be overwritten.
        x = logits.detach().float()
        if temperature != 1.0:
            x.div_(temperature)
        if begin + width > vocab:
            x[..., max(0, vocab - begin) :] = -1e30  # not -inf: 0 * -inf is not a number
        top = x.amax(-1, keepdim=True)
        if not alone:
            dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        x.sub_(top)
        local = targets - begin
        held = (local >= 0) & (local < width)
        local = local.clamp(0, width - 1).unsqueeze(-1)
        chosen = torch.where(held, x.gather(-1, local).squeeze(-1), 0.0)
        weights = x.exp()
        sums = torch.stack((chosen, weights.sum(-1), torch.linalg.vecdot(weights, x)))
        if not alone:
            dist.all_reduce(sums, group=group)
        log_total = sums[1].log()
        log_probs, entropy = sums[0] - log_total, log_total - sums[2] / sums[1]
        ctx.save_for_backward(weights, x if entropy_trains else None, sums[1], entropy, local, held)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        if not entropy_trains:
            ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, of_log_probs: Tensor | None, of_entropy: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        weights, x, total, entropy, local, held = ctx.saved_tensors
        # With p = weights / total: d log p(t) / dx = [t] - p, dH / dx = -p (log p + H); all divided by temperature.
        scale = 1.0 / ctx.temperature
        down = torch.zeros_like(total) if of_log_probs is None else of_log_probs * scale
        if of_entropy is None:
            grad = weights.mul_((-down / total).unsqueeze(-1))  # its memory is free after this
        else:
            up = of_entropy * scale
            slope = x.mul_(-up.unsqueeze(-1)).sub_((up * (entropy - total.log()) + down).unsqueeze(-1))
            grad = weights.mul_(slope.div_(total.unsqueeze(-1)))
        grad.scatter_add_(-1, local, torch.where(held, down, 0.0).unsqueeze(-1))
        return grad.to(ctx.dtype), None, None, None, None, None
