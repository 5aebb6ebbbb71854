"""Weights in Hugging Face's layout (safetensors, or a GGUF file), read and written; nothing in it is run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.decode import sizes
from guerdon.runtime.learner.hf_config import from_shape, to_shape
from guerdon.runtime.learner.hf_names import to_hf, to_megatron
from guerdon.runtime.learner.shape import ModelShape

ONE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"


def read(path: Path) -> tuple[ModelShape, dict[str, Tensor]]:
    """The shape and the float32 tensors, by Megatron-core's names, of a model folder or a GGUF file.

    Raises LearnerFault, in one line, for what is not there, damaged, or beyond this version.
    """
    if path.suffix == ".gguf":
        config, take = _gguf(path)
    elif path.is_dir():
        config, take = _document(path / CONFIG), _safetensors(path)
    else:
        raise LearnerFault(f"{path} is neither a model's folder nor a .gguf file")
    shape = to_shape(config, str(path))
    tensors = to_megatron(shape, lambda name: take(name).float())
    for name, size in sizes(shape).items():
        if tuple(tensors[name].shape) != size:
            raise LearnerFault(f"{path}: {name} is {tuple(tensors[name].shape)}, its {CONFIG} says {size}")
    return shape, tensors


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise LearnerFault(f"{path} cannot be read as JSON ({wrong}); is it a model's folder?") from wrong
    if not isinstance(found, dict):
        raise LearnerFault(f"{path} holds no JSON object; is it a model's folder?")
    return found


def _safetensors(folder: Path) -> Callable[[str], Tensor]:
    """How a folder's tensors are fetched by name, one file open at a time."""
    from safetensors import SafetensorError, safe_open

    if (folder / INDEX).is_file():
        files = _document(folder / INDEX).get("weight_map", {})
    elif (folder / ONE).is_file():
        try:
            with safe_open(folder / ONE, "pt") as whole:
                files = dict.fromkeys(whole.keys(), ONE)
        except (SafetensorError, OSError) as wrong:
            raise LearnerFault(f"{folder / ONE} is damaged ({wrong}); fetch it again") from wrong
    else:
        found = ", ".join(sorted(p.name for p in folder.glob("*.bin"))) or "nothing"
        raise LearnerFault(f"{folder} has no {ONE} (but {found}): a .bin file may run code when it is read; convert it "
                           "with transformers' save_pretrained")

    def take(name: str) -> Tensor:
        file = files.get(name)
        if not isinstance(file, str) or Path(file).name != file:
            raise LearnerFault(f"{folder} has no tensor {name}; it is another kind of model than its {CONFIG} says")
        try:
            with safe_open(folder / file, "pt") as one:
                tensor: Tensor = one.get_tensor(name)
                return tensor
        except (SafetensorError, OSError) as wrong:
            raise LearnerFault(f"{folder / file} is damaged or not there ({wrong}); fetch it again") from wrong

    return take


def _gguf(path: Path) -> tuple[Mapping[str, Any], Callable[[str], Tensor]]:
    """A GGUF file as transformers reads it: quantised weights become float32."""
    if not path.is_file():
        raise LearnerFault(f"{path} is not there")
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as wrong:
        raise LearnerFault("GGUF files are read by transformers: pip install 'guerdon[hf]'") from wrong
    try:
        model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    except Exception as wrong:
        raise LearnerFault(f"{path} cannot be read: {str(wrong).splitlines()[0][:200]}") from wrong
    state = model.state_dict()

    def take(name: str) -> Tensor:
        if name not in state:
            raise LearnerFault(f"{path} has no tensor {name}; it is a kind of model that this version does not know")
        tensor: Tensor = state[name]
        return tensor

    # What says how the file is quantised is of no use any more: transformers has made float32 of it.
    return {**model.config.to_dict(), "quantization_config": None}, take


def write(folder: Path, shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
    """Write a model's folder that transformers loads; it is whole or not there. Raises LearnerFault where it exists."""
    from safetensors.torch import save_file

    if folder.exists():
        raise LearnerFault(f"{folder} exists already; name a new folder")
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in to_hf(shape, tensors)}
    kind = str(next(iter(held.values())).dtype).removeprefix("torch.")
    # A copy each: parts of one tensor share its memory, and the format wants every tensor on its own.
    save_file({name: tensor.clone() for name, tensor in held.items()}, beside / ONE, metadata={"format": "pt"})
    (beside / CONFIG).write_text(json.dumps(from_shape(shape, kind), indent=2, sort_keys=True) + "\n")
    for path in (*sorted(beside.iterdir()), beside):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    beside.rename(folder)
