"""Canonical JSON and content digests: the same value is the same bytes on every machine."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "None | bool | int | str | Sequence[Json] | Mapping[str, Json]"
else:
    # A recursive alias cannot be resolved at run time, and the codec asks for the fields' types.
    Json = object


_RATIONAL = re.compile(r"-?[0-9]{1,4000}(/[0-9]{1,4000})?")


def dumps(value: Json) -> bytes:
    """Write a value as canonical JSON: sorted keys, no spaces, UTF-8, a line end at the end.

    Raises TypeError on a float: numbers in a plan are integers or rationals written as strings.
    """
    _refuse_floats(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def digest(data: bytes) -> str:
    """The content address of some bytes: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def rational(value: Fraction) -> str:
    """Write an exact number: `3` or `4/5`."""
    return str(value)


def parse_rational(text: str) -> Fraction:
    """Read what `rational` wrote; raises ValueError on anything else."""
    if _RATIONAL.fullmatch(text):  # `Fraction` itself would spend hours on 1e999999999
        value = Fraction(text)
        if str(value) == text:
            return value
    raise ValueError(f"{text!r:.80} is not a rational in lowest terms")


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        raise TypeError(f"float {value!r} in a canonical document")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not a string")
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)
