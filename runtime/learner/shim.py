"""Megatron-core on machines without CUDA: every symbol that is replaced, and why. With CUDA nothing is installed.

Megatron-core names the current CUDA device, CUDA's random state and `device="cuda"` in places that have nothing to
do with kernels. Each row of `PATCHES` is one such symbol; the table is all there is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from guerdon.runtime.contracts.learner import LearnerFault

WRITTEN_FOR = "0.16."
"""The megatron-core versions whose sources the table was read from."""
CPU = torch.device("cpu")
Wrap = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """One replaced symbol: its dotted name, the reason, and how the original becomes the replacement."""

    symbol: str
    why: str
    wrap: Wrap


def _current_device(original: Any) -> Any:
    return lambda: CPU


def _nothing(original: Any) -> Any:
    return lambda *args, **options: None


def _names_cuda(device: Any) -> bool:
    return str(device).startswith("cuda") if device is not None else False


def _factory(original: Any) -> Any:
    @functools.wraps(original)
    def make(*args: Any, **options: Any) -> Any:
        if _names_cuda(options.get("device")):
            options["device"] = CPU
        if options.get("pin_memory"):
            options["pin_memory"] = False
        return original(*args, **options)

    return make


def _stay(original: Any) -> Any:
    return lambda self, *args, **options: self


def _rng_get(original: Any) -> Any:
    return lambda *args, **options: torch.get_rng_state()


def _rng_set(original: Any) -> Any:
    return lambda state, *args, **options: torch.set_rng_state(state)


def _rng_seed(original: Any) -> Any:
    return torch.manual_seed


def _clip(original: Any) -> Any:
    def clip(parameters: Any, max_norm: float, total_norm: float, use_decoupled_grad: bool = False) -> None:
        factor = max_norm / (total_norm + 1e-6)
        grads = [p.grad for p in parameters if p.grad is not None] if factor < 1.0 else []
        if grads:
            torch._foreach_mul_(grads, factor)

    return clip


CUDA_NAMES = {
    torch.float32: "torch.cuda.FloatTensor",
    torch.bfloat16: "torch.cuda.BFloat16Tensor",
    torch.float16: "torch.cuda.HalfTensor",
}


@contextlib.contextmanager
def _cuda_type_names() -> Iterator[None]:
    """While it is open, `tensor.type()` says what it would say on CUDA."""
    original = torch.Tensor.type

    def named(self: Any, *args: Any, **options: Any) -> Any:
        asked = not args and not options
        return CUDA_NAMES.get(self.dtype, original(self)) if asked else original(self, *args, **options)

    torch.Tensor.type = named  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.type = original  # type: ignore[method-assign]


def _with_type_names(original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        with _cuda_type_names():
            return original(*args, **options)

    return call


_DEVICE = "the rotary embedding, the gradient buffers, pipelines and checkpoints allocate on it"
_LITERAL = "optimizers, gradient norms and pipeline schedules allocate with device='cuda' written out"
_TYPES = "the mixed-precision optimizers compare tensor.type() with names of CUDA types"
_OPTIMIZER = "megatron.core.optimizer"

PATCHES: tuple[Patch, ...] = (
    Patch("torch.cuda.current_device", _DEVICE, _current_device),
    Patch("torch.cuda.synchronize", "pipeline transfers and checkpoint writers wait for kernels", _nothing),
    Patch("torch.cuda.get_rng_state", "activation recomputation keeps the random state", _rng_get),
    Patch("torch.cuda.manual_seed", "the tracker of random states seeds each of its states", _rng_seed),
    *(Patch(f"torch.{name}", _LITERAL, _factory) for name in ("tensor", "zeros", "ones", "empty", "full", "arange")),
    Patch("torch.Tensor.cuda", "tied embeddings and context-parallel positions are moved to the device", _stay),
    Patch("megatron.core.tensor_parallel.random._get_cuda_rng_state", "the tracker reads CUDA's state", _rng_get),
    Patch("megatron.core.tensor_parallel.random._set_cuda_rng_state", "the tracker sets CUDA's state", _rng_set),
    Patch(f"{_OPTIMIZER}.clip_grads.clip_grad_by_total_norm_fp32", "it asserts a CUDA tensor type", _clip),
    Patch(f"{_OPTIMIZER}.optimizer.clip_grad_by_total_norm_fp32", "the same, imported by name", _clip),
    Patch(f"{_OPTIMIZER}.distrib_optimizer.DistributedOptimizer.__init__", _TYPES, _with_type_names),
    Patch(
        f"{_OPTIMIZER}.distrib_optimizer.DistributedOptimizer._copy_model_params_to_main_params",
        _TYPES,
        _with_type_names,
    ),
    Patch(f"{_OPTIMIZER}.optimizer.Float16OptimizerWithFloat16Params.__init__", _TYPES, _with_type_names),
)


def check_version() -> None:
    """Raises LearnerFault where megatron-core is missing or not of a version that this package was written for."""
    try:
        from megatron.core.package_info import __version__ as version
    except ImportError as error:
        raise LearnerFault("megatron-core is not installed: install guerdon[learn]") from error
    if not version.startswith(WRITTEN_FOR):
        raise LearnerFault(
            f"megatron-core {version} is not supported: install megatron-core=={WRITTEN_FOR}* "
            "(the learner replaces some of its functions and was read against that version)"
        )


def resolve(symbol: str) -> tuple[Any, str]:
    """The object that holds a dotted name's last part, and that part. Raises AttributeError, ImportError."""
    parts = symbol.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:-1]:
            owner = getattr(owner, part)
        getattr(owner, parts[-1])
        return owner, parts[-1]
    raise ImportError(symbol)


_installed = False


def install() -> bool:
    """Replace every symbol of the table where CUDA is missing; says whether it is in force. Raises LearnerFault."""
    global _installed  # noqa: PLW0603 - a process is patched once
    check_version()
    if torch.cuda.is_available() or _installed:
        return _installed
    for patch in PATCHES:
        owner, name = resolve(patch.symbol)
        setattr(owner, name, patch.wrap(getattr(owner, name)))
    _installed = True
    return True
