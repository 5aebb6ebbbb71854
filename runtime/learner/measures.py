"""The loss of a step and its metrics: per-token numbers on each rank, summed over all of them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault, LossConfig
from guerdon.runtime.learner.batch import MicroBatch
from guerdon.runtime.learner.losses import LOSSES, Tokens

SUMS = ("loss", "tokens", "entropy", "clip_share", "kl", "kl_reference")


class SumOverContext(torch.autograd.Function):
    """Sum over context-parallel ranks; each rank's loss looks at the sum, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Any) -> Tensor:  # type: ignore[override]
        ctx.group = group
        total = value.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def row_sum(values: Tensor) -> Tensor:
    """[rows, 1]: the sum over a row's positions on all context-parallel ranks, differentiable."""
    from megatron.core import parallel_state

    own = values.sum(-1, keepdim=True)
    group = parallel_state.get_context_parallel_group()
    if group.size() == 1:
        return own
    total: Tensor = SumOverContext.apply(own, group)  # type: ignore[no-untyped-call]
    return total


class Step:
    """One training step; `reports` says whether this rank's numbers count (tensor-parallel ranks share them)."""

    def __init__(self, loss: LossConfig, device: torch.device, reports: bool) -> None:
        if loss.name not in LOSSES:
            raise LearnerFault(f"loss {loss.name!r} is unknown; there are {', '.join(sorted(LOSSES))}")
        self.config, self.reports = loss, reports
        self.sums = torch.zeros(len(SUMS), dtype=torch.float64, device=device)
        self.ratio = torch.zeros((), dtype=torch.float64, device=device)

    def consume(self, micro: MicroBatch, scored: Tensor) -> Tensor:
        """The micro-batch's part of the step's loss: sum of coefficient * mask * per-token loss."""
        mask, trains = micro.mask, micro.mask > 0
        # Where nothing trains, everything is 0: an overflow there would become a gradient that is not a number.
        log_probs = torch.where(trains, scored[0], 0.0)
        entropy = torch.where(trains, scored[1], 0.0)
        tokens = Tokens(
            logprobs=log_probs,
            old=micro.old,
            advantages=micro.advantages,
            mask=mask,
            reference=micro.reference,
            entropy=entropy,
            row_sum=row_sum,
        )
        each, found = LOSSES[self.config.name](tokens, self.config)
        loss: Tensor = (each * (mask * micro.coefficients)).sum()
        if self.reports:
            self._note(loss, tokens, found)
        return loss

    @torch.no_grad()
    def _note(self, loss: Tensor, tokens: Tokens, found: dict[str, Tensor]) -> None:
        mask, difference = tokens.mask, tokens.logprobs - tokens.old
        none = torch.zeros_like(mask)
        entropy = none if tokens.entropy is None else tokens.entropy
        parts = {"tokens": mask, "entropy": entropy, "kl": -difference, **found}
        totals = [loss.detach(), *((parts.get(name, none) * mask).sum() for name in SUMS[1:])]
        self.sums += torch.stack([total.double() for total in totals])
        self.ratio = torch.maximum(self.ratio, (difference.exp() * mask).max().double())

    def finish(self) -> dict[str, float]:
        """Metrics over all ranks. Raises LearnerFault, on every rank, where the loss is not finite."""
        dist.all_reduce(self.sums)
        dist.all_reduce(self.ratio, op=dist.ReduceOp.MAX)
        totals = dict(zip(SUMS, self.sums.tolist(), strict=True))
        if not math.isfinite(totals["loss"]):
            raise LearnerFault("the loss is not finite: lower the learning rate, or look at the batch's advantages")
        count = totals["tokens"]
        means = {name: totals[name] / count for name in SUMS[2:]}
        return {"loss": totals["loss"], "tokens": count, **means, "ratio_max": float(self.ratio)}
