"""Log-probabilities and entropies over a vocabulary that is spread over tensor-parallel ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def padded(vocab: int, tensor_ranks: int) -> int:
    """Rows of the embedding: the vocabulary padded to a multiple of the tensor-parallel ranks."""
    return -(-vocab // tensor_ranks) * tensor_ranks


def score(logits: Tensor, targets: Tensor, vocab: int, temperature: float, group: Any) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of each distribution, under softmax(logits / temperature).

    `logits` is [..., vocab / ranks] and its memory is used up; `targets` is [...]. Ids at or above `vocab` (padding)
    have no probability. Both results are float32 [...], the same on every rank of `group`, and differentiable.
    """
    log_probs, entropy = _Score.apply(logits, targets, vocab, temperature, group)  # type: ignore[no-untyped-call]
    return log_probs, entropy


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]  # noqa: PLR0917 - autograd passes them by position
        ctx: Any, logits: Tensor, targets: Tensor, vocab: int, temperature: float, group: Any
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
        ctx.save_for_backward(x, log_total, entropy, local, held)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, of_log_probs: Tensor | None, of_entropy: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        x, log_total, entropy, local, held = ctx.saved_tensors
        log_p = x.sub_(log_total.unsqueeze(-1))  # used once: x is not needed after this
        grad = log_p.exp() if of_entropy is not None else log_p.exp_()
        if of_entropy is not None:
            # dH/dx = -p (log p + H); d log p(t) / dx = [t] - p
            slope = (log_p + entropy.unsqueeze(-1)).mul_(-of_entropy.unsqueeze(-1))
            grad.mul_(slope if of_log_probs is None else slope.sub_(of_log_probs.unsqueeze(-1)))
        elif of_log_probs is not None:
            grad.mul_(-of_log_probs.unsqueeze(-1))
        if of_log_probs is not None:
            grad.scatter_add_(-1, local, torch.where(held, of_log_probs, 0.0).unsqueeze(-1))
        if ctx.temperature != 1.0:
            grad.div_(ctx.temperature)
        return grad.to(ctx.dtype), None, None, None, None
