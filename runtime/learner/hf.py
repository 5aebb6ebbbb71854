"""Weights in Hugging Face's layout (safetensors, or a GGUF file), read and written; nothing in it is run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault
from guerdon.runtime.learner.decode import sizes
from guerdon.runtime.learner.hf_config import from_shape, to_shape
from guerdon.runtime.learner.hf_gguf import read_gguf
from guerdon.runtime.learner.hf_names import EMBED, EMBEDDING, HEAD, hf_names, to_hf, to_megatron
from guerdon.runtime.learner.shape import ModelShape

ONE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def read(path: Path) -> tuple[ModelShape, dict[str, Tensor]]:
    """The shape and the float32 tensors, by Megatron-core's names, of a model folder or a GGUF file.

    Raises LearnerFault, in one line, for what is not there, damaged, or beyond this version.
    """
    if path.suffix == ".gguf":
        config, take = read_gguf(path)
    elif path.is_dir():
        config = _document(path / CONFIG)
        take = _folder(path, to_shape(config, str(path)))
    else:
        raise LearnerFault(f"{path} is neither a model's folder nor a .gguf file")
    shape = to_shape(config, str(path))
    try:
        tensors = to_megatron(shape, lambda name: _float(path, name, take(name)))
    except RuntimeError as wrong:  # parts of different sizes cannot be joined
        raise LearnerFault(f"{path}: the tensors do not fit its {CONFIG}: {str(wrong).splitlines()[0]}") from wrong
    for name, size in sizes(shape).items():
        if tuple(tensors[name].shape) != size:
            raise LearnerFault(f"{path}: {name} is {tuple(tensors[name].shape)}, its {CONFIG} says {size}")
    return shape, tensors


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as wrong:
        raise LearnerFault(f"{path} cannot be read as JSON ({wrong}); is it a model's folder?") from wrong
    if not isinstance(found, dict):
        raise LearnerFault(f"{path} holds no JSON object; is it a model's folder?")
    return found


def _files(folder: Path) -> Mapping[str, str]:
    """The file of each tensor of a folder, by name; only tensors are read, never a pickle."""
    from safetensors import SafetensorError, safe_open

    if (folder / INDEX).is_file() and not (folder / ONE).is_file():  # transformers, too, takes the one file of both
        files = _document(folder / INDEX).get("weight_map")
        if not isinstance(files, dict):
            raise LearnerFault(f"{folder / INDEX} has no weight_map; fetch it again")
        return files
    if not (folder / ONE).is_file():
        found = ", ".join(sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)) or "nothing like it"
        raise LearnerFault(f"{folder} has no {ONE} (but {found}): a .bin file may run code when it is read; convert it "
                           "with transformers' save_pretrained")
    try:
        with safe_open(folder / ONE, "pt") as whole:
            return dict.fromkeys(whole.keys(), ONE)
    except (SafetensorError, OSError) as wrong:
        raise LearnerFault(f"{folder / ONE} is damaged ({wrong}); fetch it again") from wrong


def _folder(folder: Path, shape: ModelShape) -> Callable[[str], Tensor]:
    """How a folder's tensors are fetched. Tensors that would be left out are refused: they are part of what the model
    computes. Raises LearnerFault."""
    files = _files(folder)
    if shape.layers > len(files):  # before anything is made for each layer
        raise LearnerFault(f"{folder}: num_hidden_layers is {shape.layers}, and there are {len(files)} tensors in all")
    for name in sorted(set(files) - set(hf_names(shape)) - {HEAD}):
        if not name.endswith(".rotary_emb.inv_freq"):  # older files hold these; they follow from the configuration
            raise LearnerFault(f"{folder}: the tensor {name} is not one of such a model; it would be left out")
    take = partial(_take, folder, files)
    if shape.tied and HEAD in files and not torch.equal(take(HEAD), take(EMBED)):
        raise LearnerFault(f"{folder}: tie_word_embeddings is true, but {HEAD} is not {EMBED}; set it to false "
                           f"in {CONFIG}")
    return take


def _take(folder: Path, files: Mapping[str, str], name: str) -> Tensor:
    """One tensor of a folder, one file open at a time."""
    from safetensors import SafetensorError, safe_open

    file = files.get(name)
    if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
        raise LearnerFault(f"{folder} has no tensor {name} in a .safetensors file; it is another kind of model than "
                           f"its {CONFIG} says")
    try:
        with safe_open(folder / file, "pt") as one:
            tensor: Tensor = one.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as wrong:
        raise LearnerFault(f"{folder / file} is damaged or not there ({wrong}); fetch it again") from wrong


def _float(path: Path, name: str, tensor: Tensor) -> Tensor:
    """A tensor in float32, which holds every value of the dtypes that are taken."""
    if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise LearnerFault(f"{path}: {name} is {tensor.dtype}, which this version cannot do; take a model in bfloat16")
    return tensor.float()


def write(folder: Path, shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
    """Write a model's folder that transformers loads; it is whole or not there. Raises LearnerFault where it exists."""
    from safetensors.torch import save_file

    if folder.exists():
        raise LearnerFault(f"{folder} exists already; name a new folder")
    kind = str(tensors[EMBEDDING].dtype).removeprefix("torch.")
    config = from_shape(shape, kind)
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in to_hf(shape, tensors)}
    # A copy each: parts of one tensor share its memory, and the format wants every tensor on its own.
    save_file({name: tensor.clone() for name, tensor in held.items()}, beside / ONE, metadata={"format": "pt"})
    (beside / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for path in (*sorted(beside.iterdir()), beside):
        _flush(path)
    beside.rename(folder)
    _flush(folder.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
