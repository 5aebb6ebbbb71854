"""GGUF files, read by transformers; their header is read here first, for what transformers would leave out silently."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from guerdon.runtime.contracts.learner import LearnerFault

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LAYER = ("attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_MORE = {
    "llama": (), "qwen2": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "qwen3": ("attn_q_norm.weight", "attn_k_norm.weight"),
}


def read_gguf(path: Path) -> tuple[Mapping[str, Any], Callable[[str], Tensor]]:
    """A file's configuration as Hugging Face's, and how its tensors are fetched; quantised ones become float32.

    Raises LearnerFault.
    """
    if not path.is_file():
        raise LearnerFault(f"{path} is not there")
    try:
        values, names = header(path)
    except (OSError, ValueError, struct.error, IndexError, RecursionError) as wrong:
        raise LearnerFault(f"{path} is no whole GGUF file ({wrong}); fetch it again") from wrong
    _check(path, values, names)
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as wrong:
        raise LearnerFault("GGUF files are read by transformers: pip install 'guerdon[hf]'") from wrong
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32, trust_remote_code=False, local_files_only=True
        )
    except Exception as wrong:  # transformers raises of every kind for what is damaged
        said = next(iter(str(wrong).strip().splitlines()), type(wrong).__name__)
        raise LearnerFault(f"{path} cannot be read: {said[:200]}") from wrong
    state = model.state_dict()
    # What says how the file is quantised is of no use any more: transformers has made float32 of it.
    return {**model.config.to_dict(), "quantization_config": None}, state.__getitem__


def _check(path: Path, values: Mapping[str, Any], names: set[str]) -> None:
    """Refuse what this version cannot do exactly. Raises LearnerFault."""
    family = values.get("general.architecture")
    if family not in _MORE:
        raise LearnerFault(f"{path}: general.architecture is {family!r}; this version knows {', '.join(_MORE)}")
    for key, fine in (("rope.scaling.type", (None, "none")), ("expert_count", (None, 0))):
        if values.get(f"{family}.{key}") not in fine:
            raise LearnerFault(f"{path}: {family}.{key} is {values[f'{family}.{key}']!r}, which this version cannot do")
    if "rope_freqs.weight" in names:
        raise LearnerFault(f"{path}: rope_freqs.weight (Llama 3's stretched positions) is left out when a GGUF file is "
                           "read; take the model's folder with safetensors")
    wanted = {"token_embd.weight", "output_norm.weight"}
    layers = values.get(f"{family}.block_count")
    if not isinstance(layers, int) or not 0 < layers <= len(names):  # before anything is made for each layer
        raise LearnerFault(f"{path}: {family}.block_count is {layers!r:.100}, and there are {len(names)} tensors "
                           "in all")
    for index in range(layers):
        wanted |= {f"blk.{index}.{one}.weight" for one in _LAYER} | {f"blk.{index}.{one}" for one in _MORE[family]}
    for name in sorted(wanted - names):
        raise LearnerFault(f"{path} has no tensor {name}; it is another kind of model than its header says")
    for name in sorted(names - wanted - {"output.weight"}):
        raise LearnerFault(f"{path}: the tensor {name} is not one that this version knows; it would be left out")


def header(path: Path) -> tuple[dict[str, Any], set[str]]:
    """A file's numbers and strings by key, and its tensors' names (specification: ggml's docs/gguf.md, versions 2, 3).

    Raises ValueError or struct.error for what is no such file.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        if data[:4] != b"GGUF" or cursor.number("I", at=4) not in (2, 3):
            raise ValueError("it does not begin as GGUF, version 2 or 3, does")
        tensors, entries = cursor.number("Q"), cursor.number("Q")
        values = {}
        for _ in range(entries):
            key = cursor.string()
            values[key] = cursor.value(cursor.number("I"))
        names = set()
        for _ in range(tensors):
            names.add(cursor.string())
            cursor.skip(8 * cursor.number("I") + 12)
        return values, names


class _Cursor:
    """Reads one thing after the other; every step takes at least a byte, so a hostile count ends at the file's end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def number(self, kind: str, at: int | None = None) -> Any:
        self._at = self._at if at is None else at
        (value,) = struct.unpack_from(f"<{kind}", self._data, self._at)
        self._at += struct.calcsize(f"<{kind}")
        return value

    def skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("it ends too early")

    def string(self) -> str:
        size = self.number("Q")
        begin = self._at
        self.skip(size)
        return self._data[begin : self._at].decode(errors="replace")

    def value(self, kind: int) -> Any:
        """A value; of an array nothing is kept."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise ValueError(f"there is no value of kind {kind}")
        of, count = self.number("I"), self.number("Q")
        if of in _NUMBERS:
            self.skip(count * struct.calcsize(f"<{_NUMBERS[of]}"))
            return None
        for _ in range(count):
            if of == _STRING:
                self.skip(self.number("Q"))
            else:
                self.value(of)
        return None
