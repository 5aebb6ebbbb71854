"""The machine under a rank: backend, device, threads and seeds. With the shim, all that knows of CUDA."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from guerdon.runtime.learner import shim


@dataclass(frozen=True, slots=True)
class Device:
    """Where a rank computes, and how ranks speak."""

    torch: torch.device
    backend: str

    @property
    def cuda(self) -> bool:
        """Whether kernels run on a GPU."""
        return self.torch.type == "cuda"


def prepare(local_rank: int, threads: int) -> Device:
    """Choose the device of a rank and make Megatron-core run on it. Raises LearnerFault."""
    torch.set_num_threads(threads)
    shim.install()
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return current()


def current() -> Device:
    """The device of a prepared process."""
    if not torch.cuda.is_available():
        return Device(torch.device("cpu"), "gloo")
    return Device(torch.device("cuda", torch.cuda.current_device()), "nccl")


def seed(value: int) -> None:
    """Seed every generator that a library might draw from (the learner itself draws from none)."""
    random.seed(value)
    torch.manual_seed(value)  # the GPUs' generators too
