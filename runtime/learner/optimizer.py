"""Megatron-core's optimizers, plain and distributed: built, primed, stepped at the learning rate of each step."""

from __future__ import annotations

import math
from typing import Any

import torch

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.model import dtype
from guerdon.runtime.learner.shape import LearnerConfig


def wrap(module: Any, config: LearnerConfig) -> Any:
    """The module inside of Megatron's DistributedDataParallel: contiguous float32 gradient buffers."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

    options = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=config.parallel.distributed_optimizer
    )
    return DistributedDataParallel(module.config, options, module)


def build(ddp: Any, config: LearnerConfig) -> Any:
    """The optimizer of a wrapped module, its moments allocated."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    chosen = config.optimizer
    options = OptimizerConfig(
        optimizer="adam",
        lr=0.0,
        weight_decay=chosen.weight_decay,
        adam_beta1=chosen.beta1,
        adam_beta2=chosen.beta2,
        adam_eps=chosen.eps,
        clip_grad=chosen.clip_grad,
        bf16=config.precision == "bf16",
        params_dtype=dtype(config.precision),
        use_distributed_optimizer=config.parallel.distributed_optimizer,
    )
    optimizer = get_megatron_optimizer(options, [ddp])
    for part in optimizer.chained_optimizers:
        prime(part.optimizer)
        if hasattr(part, "_set_main_param_and_optimizer_states"):
            _load_without_step(part)
    return optimizer


def prime(adam: Any) -> None:
    """Give torch's Adam its fused kernel (one pass over memory) and its moments before the first step.

    A checkpoint may then be written or read at any time; Megatron-core allocates moments without the step count
    that torch's Adam needs. Transformer Engine's Adam keeps its own state and is left alone.
    """
    for group in adam.param_groups:
        if "fused" not in group:
            continue
        group["fused"], group["foreach"] = True, False
        for parameter in group["params"]:
            state = adam.state[parameter]
            # A copy of its own: after a load, a distributed optimizer's parameters share one and count it up together.
            state["step"] = state["step"].clone() if "step" in state else torch.zeros((), device=parameter.device)
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment not in state:
                    state[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def forget(optimizer: Any) -> None:
    """Set every moment and step count to zero, as before the first step."""
    for part in optimizer.chained_optimizers:
        for state in part.optimizer.state.values():
            for held in state.values():
                held.zero_()


def _load_without_step(part: Any) -> None:
    """A distributed optimizer's checkpoint keeps one step count for all, and its reader asks each parameter for it."""
    original = part._set_main_param_and_optimizer_states

    def write(parameter: Any, tensors: dict[str, Any]) -> None:
        group, order = part.model_param_group_index_map[parameter]
        state = part.optimizer.state[part.optimizer.param_groups[group]["params"][order]]
        with torch.no_grad():
            original(parameter, {"step": state["step"], **tensors} if "step" in state else tensors)

    part._set_main_param_and_optimizer_states = write


def update(optimizer: Any, lr: float, weight_decay: float) -> float:
    """One step at a learning rate; gives the norm of the gradient before clipping.

    Raises LearnerFault, on every rank and before any weight changes, where the norm is not finite.
    """
    from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32

    for group in optimizer.param_groups:
        # Norms and biases do not decay: Megatron-core says so in `wd_mult`, which only its scheduler reads.
        group["lr"], group["weight_decay"] = lr, weight_decay * group["wd_mult"]
    optimizer.prepare_grads()
    norm = float(optimizer.get_grad_norm())
    if not math.isfinite(norm):
        raise LearnerFault("the gradient is not finite: lower the learning rate, or look at the batch's advantages")
    if optimizer.config.clip_grad > 0.0:
        for part in optimizer.chained_optimizers:
            clip_grad_by_total_norm_fp32(part.get_parameters(), optimizer.config.clip_grad, norm)
    optimizer.step_with_ready_grads()
    return norm
