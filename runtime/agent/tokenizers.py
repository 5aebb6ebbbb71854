"""Hugging Face tokenizers as bytes and ids: frames in which markers count, plain text in which nothing does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def load(source: str) -> Any:
    """The tokenizer of a model's folder or GGUF file, from this machine alone; no code of the folder is run.

    Raises ValueError, in one line.
    """
    path = Path(source)
    if not path.exists():  # transformers would look for such a name on the net
        raise ValueError(f"no tokenizer can be read from {source}: there is no such folder or file; "
                         "name a model's folder or .gguf file")
    try:
        from transformers import AutoTokenizer
    except ImportError as wrong:
        raise ValueError("`chat` needs transformers: pip install 'guerdon[hf]'") from wrong
    where = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    folder = path.parent if where else path
    try:
        return AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True, **where
        )
    except Exception as wrong:  # transformers raises of every kind for what is damaged
        raise ValueError(f"no tokenizer can be read from {source}: {first_line(wrong)}") from wrong


def first_line(error: Exception) -> str:
    """What an error of a library says, on one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


class Tokens:
    """A byte-level tokenizer. `frame` reads markers as markers, `plain` reads nothing as one.

    Control ids are the tokenizer's special tokens, and those added tokens that stand in `shown` (what the chat template
    renders around contents): some models' role markers are not special. Raises ValueError for a tokenizer that is not
    byte-level, where text that is tokenised in parts would not be the same text.
    """

    def __init__(self, tokenizer: Any, shown: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ValueError("the tokenizer has no tokenizer.json; save it as a fast one with transformers")
        document = json.loads(backend.to_str())
        if not _byte_level(document.get("decoder")):
            raise ValueError("the tokenizer is not byte-level: text tokenised in parts would change; take another")
        document.update(post_processor=None, truncation=None, padding=None)
        self._frame = _made(document)
        added = {token["id"]: token["content"] for token in document["added_tokens"]}
        special = {token["id"] for token in document["added_tokens"] if token["special"]}
        self.control = frozenset(special | set(tokenizer.all_special_ids) | (set(self.frame(shown)) & set(added)))
        self.markers = marker_pattern(added[i] for i in sorted(self.control) if i in added)
        # Left out, the others' ids would move: they are made special, and special ones are read as text.
        listed = [{**token, "special": token["id"] in self.control} for token in document["added_tokens"]]
        self._plain = _made({**document, "added_tokens": listed})
        self._plain.encode_special_tokens = True
        self._added: dict[int, bytes] = {i: text.encode(errors="replace") for i, text in added.items()}

    def frame(self, text: str) -> list[int]:
        """The ids of a text in which markers are markers."""
        found: list[int] = self._frame.encode(text, add_special_tokens=False).ids if text else []
        return found

    def plain(self, text: str) -> list[int]:
        """The ids of a text in which nothing is a marker. A lone surrogate, which is no text, becomes `?`."""
        clean = text.encode(errors="replace").decode()
        found: list[int] = self._plain.encode(clean, add_special_tokens=False).ids if clean else []
        if self.control.isdisjoint(found):
            return found
        # A vocabulary may reach a marker by merges of ordinary pieces: what looks like one is spelt by characters.
        spelt: list[int] = []
        last = 0
        for mark in self.markers.finditer(clean):
            for part in (clean[last : mark.start()], *mark.group()):
                spelt += self._plain.encode(part, add_special_tokens=False).ids
            last = mark.end()
        spelt += self._plain.encode(clean[last:], add_special_tokens=False).ids
        return [i for i in spelt if i not in self.control]

    def knows(self, token: int) -> bool:
        """Whether the tokenizer has an id; a model's embedding is often padded beyond them."""
        return self._frame.id_to_token(token) is not None

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids; control ids and unknown ones have none."""
        return b"".join(map(self._bytes, ids))

    def _bytes(self, token: int) -> bytes:
        if token in self.control:
            return b""
        if token in self._added:
            return self._added[token]
        text: str = self._frame.id_to_token(token) or ""
        return b"".join(bytes((_BYTES[c],)) if c in _BYTES else c.encode(errors="replace") for c in text)


def marker_pattern(markers: Iterable[str]) -> re.Pattern[str]:
    """Matches any of some texts, the longest first; nothing where there are none."""
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))) or "(?!)")


def _made(document: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(document))


def _byte_level(decoder: Any) -> bool:
    kinds = [decoder, *decoder.get("decoders", ())] if isinstance(decoder, dict) else []
    return any(isinstance(kind, dict) and kind.get("type") == "ByteLevel" for kind in kinds)


def _alphabet() -> dict[str, int]:
    """The bytes of GPT-2's printable alphabet (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _alphabet()
