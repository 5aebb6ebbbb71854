"""Evidence for people: bounded text without what could harm a terminal or a page."""

from __future__ import annotations

import re
import unicodedata

LIMIT = 4096
"""Bytes of UTF-8 that a verdict's evidence may take."""
# CSI, OSC and the shorter escapes, then whatever control character is left.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|\x9b[0-?]*[@-~]")


def clean(text: str | bytes, limit: int = LIMIT) -> str:
    """Text without escape sequences, control and format characters (line ends and tabs stay), at most `limit` bytes."""
    if isinstance(text, bytes):
        text = text[: limit * 4].decode("utf-8", "replace")
    text = _ESCAPES.sub("", text[: limit * 4].replace("\r\n", "\n"))
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    data = kept.encode()
    if len(data) <= limit:
        return kept
    return data[: limit - 4].decode("utf-8", "ignore") + "…"
