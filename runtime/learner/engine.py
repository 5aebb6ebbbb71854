"""One rank's learner: log-probabilities, update steps, a reference policy, published weights."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault, LossConfig, Row, WeightsRef
from guerdon.runtime.learner import batch, measures, model, names, optimizer
from guerdon.runtime.learner.batch import MicroBatch, Share
from guerdon.runtime.learner.device import Device, seed
from guerdon.runtime.learner.shape import LearnerConfig

Consume = Callable[[MicroBatch, Tensor], Tensor]
"""What the last stage makes of a micro-batch's [2, rows, positions] log-probabilities and entropies: its loss."""


class Engine:
    """A rank's part of the model; every method is a collective call that all ranks make with the same arguments.

    The process group must be initialised. Faults that are LearnerFault are raised on all ranks alike.
    """

    def __init__(self, config: LearnerConfig, device: Device, weights: Mapping[str, Tensor] | None = None) -> None:
        from megatron.core import parallel_state, tensor_parallel

        parallel = config.parallel
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=parallel.tensor,
            pipeline_model_parallel_size=parallel.pipeline,
            context_parallel_size=parallel.context,
        )
        seed(config.seed)
        tensor_parallel.model_parallel_cuda_manual_seed(config.seed)
        self.config, self.device, self.ranks = config, device, parallel_state
        module = model.build(config, device)
        drawn = names.Drawn(config.model, config.seed)
        names.load_full(module, config.model, weights if weights is not None else drawn)
        self.module = optimizer.wrap(module, config)
        self.module.config.finalize_model_grads_func = _finalize
        self.policy = model.policy(module)
        self.optimizer = optimizer.build(self.module, config)
        self.version = 0
        self.reference_weights: dict[str, Tensor] = {}

    # -- scoring -----------------------------------------------------------------------------------------------------

    def logprobs(self, rows: Sequence[Row], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each id of each row given those before it; 0.0 at position 0. The same on every rank."""
        batch.check(rows, self.config.model)
        if not rows:
            return []
        offsets = [0]
        for row in rows:
            offsets.append(offsets[-1] + len(row.ids))
        flat = torch.zeros(offsets[-1], dtype=torch.float32, device=self.device.torch)

        def keep(micro: MicroBatch, scored: Tensor) -> Tensor:
            for line, index in enumerate(micro.share.rows if self._reports else ()):
                inside = micro.at < len(rows[index].ids) - 1
                flat[offsets[index] + 1 + micro.at[inside]] = scored[0, line, inside]
            return scored.new_zeros(())

        self.policy.temperature = temperature
        self.module.eval()
        with torch.no_grad():
            self._run(self._shares(rows, range(len(rows))), rows, [0.0] * len(rows), keep, train=False)
        dist.all_reduce(flat)
        values = flat.tolist()
        return [tuple(values[begin:end]) for begin, end in itertools.pairwise(offsets)]

    def keep_reference(self) -> None:
        """Remember the present weights (each rank its own shards)."""
        self.reference_weights = {name: held.detach().clone() for name, held in self.parameters().items()}

    def reference(self, rows: Sequence[Row], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """`logprobs` under the remembered weights. Raises LearnerFault where none are."""
        with self.referring():
            return self.logprobs(rows, temperature)

    @contextlib.contextmanager
    def referring(self) -> Iterator[None]:
        """While it is open, the model's parameters are the reference policy's: memory is exchanged, not copied."""
        if not self.reference_weights:
            raise LearnerFault("no reference policy is kept: call keep_reference first")
        own = self.parameters()
        live = {name: held.data for name, held in own.items()}
        for name, held in own.items():
            held.data = self.reference_weights[name]
        try:
            yield
        finally:
            for name, held in own.items():
                held.data = live[name]

    def parameters(self) -> dict[str, Tensor]:
        """This rank's shards by global name."""
        return names.parameters(self.module, self.config.model)

    # -- training ----------------------------------------------------------------------------------------------------

    def train_step(self, rows: Sequence[Row], loss: LossConfig, lr: float) -> dict[str, float]:
        """One update; the metrics of the contract, the same on every rank.

        Raises LearnerFault, with the weights unchanged, where loss or gradient is not finite.
        """
        from guerdon.runtime.learner.losses import coefficients

        batch.check(rows, self.config.model)
        lengths = [sum(row.mask) for row in rows]
        training = [index for index, length in enumerate(lengths) if length]
        if not training:
            raise LearnerFault("no row of the batch has an id that trains: every trajectory is invalid or empty")
        step = measures.Step(loss, self.device.torch, self._reports)
        self.policy.temperature, self.policy.entropy_trains = loss.temperature, loss.entropy != 0.0
        self.module.train()
        self.module.zero_grad_buffer()
        self.optimizer.zero_grad()
        self._run(self._shares(rows, training), rows, coefficients(loss, lengths), step.consume, train=True)
        metrics = step.finish()
        metrics["grad_norm"] = optimizer.update(self.optimizer, lr, self.config.optimizer.weight_decay)
        self.version += 1
        return metrics

    def renew(self) -> None:
        """Keep the weights, forget the optimizer's state, count updates from 0."""
        optimizer.forget(self.optimizer)
        self.version = 0

    # -- the schedule ------------------------------------------------------------------------------------------------

    @property
    def _reports(self) -> bool:
        """Whether this rank's numbers count: of tensor-parallel ranks, which all have them, the first one's do."""
        first: bool = self.ranks.get_tensor_model_parallel_rank() == 0
        return first

    def _shares(self, rows: Sequence[Row], chosen: Sequence[int]) -> list[Share]:
        sizes = batch.widths(rows, self.config.parallel)
        mine = batch.assign(sizes, chosen, self.config.parallel.data)[self.ranks.get_data_parallel_rank()]
        return batch.pack(sizes, mine, self.config.micro_tokens, self.config.parallel.pipeline)

    def _run(
        self, shares: list[Share], rows: Sequence[Row], factors: Sequence[float], consume: Consume, train: bool
    ) -> None:
        """All micro-batches of this rank through Megatron's schedule; gradients are summed over all ranks after it."""
        from megatron.core.pipeline_parallel import get_forward_backward_func

        context = (self.config.parallel.context, self.ranks.get_context_parallel_rank())
        micros = (batch.tensors(share, rows, factors, context, self.device.torch) for share in shares)

        def forward(iterator: Iterator[MicroBatch], module: Any) -> tuple[Tensor, Any]:
            micro = next(iterator)
            out = module(micro.ids, micro.at[None].expand_as(micro.ids), None, labels=micro.labels)
            return out, partial(_close, micro, consume)

        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=micros,
            model=[self.module],
            num_microbatches=len(shares),
            seq_length=shares[0].width,
            micro_batch_size=max(1, len(shares[0].rows)),
            forward_only=not train,
        )

    # -- weights out and in ------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter whole, by global name; the model's own memory where neither tensors nor layers are split."""
        return names.full_tensors(self.module, self.config.model)

    def publish(self) -> tuple[WeightsRef, dict[str, Tensor]]:
        """The present weights' reference, and the weights."""
        held = self.tensors()
        return WeightsRef(self.version, names.digest(held)), held

    def save(self, folder: Path) -> None:
        """Write a checkpoint into a new folder, durably. Raises LearnerFault."""
        from guerdon.runtime.learner import checkpoint

        checkpoint.save(self, folder)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint. Raises LearnerFault."""
        from guerdon.runtime.learner import checkpoint

        checkpoint.load(self, folder)


def _close(micro: MicroBatch, consume: Consume, scored: Tensor) -> tuple[Tensor, Tensor, None]:
    return consume(micro, scored), torch.zeros((), dtype=torch.int, device=scored.device), None


def _finalize(modules: list[Any], num_tokens: Tensor | None = None, **options: Any) -> None:
    """Sum gradients over all ranks; nothing is divided by a count of tokens, since coefficients already are."""
    from megatron.core.distributed import finalize_model_grads

    finalize_model_grads(modules, None, **options)
