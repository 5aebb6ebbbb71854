"""The one way in which values cross between the trusted parent and the candidate's process: as data.

A scalar is itself; everything else is a JSON array whose first item is a tag. Only exact builtin and standard
types are data: a subclass (which may override `__eq__`) is left to the `opaque` hook of the side that writes.
The reader builds every value itself, so what it returns has exactly the types below whatever the writer sent.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import sys
from collections.abc import Callable
from typing import Any

DEPTH = 120
"""Levels of nesting that may cross."""
NODES = 500_000
"""Containers in one message, and items of all its containers that are no plain scalars."""
FRAME = 8 * 1024 * 1024
"""Bytes of one message: read into objects it takes up to some twenty times that, and the parent must never be the one
that runs out of memory."""
INT_BITS = 4_000_000
"""Size of the largest integer that may cross: more would only be a way to waste the parent's time."""
SMALL = 1 << 53

MUTABLE = ("list", "dict", "set", "bytearray")
_TEXTS = {
    "dec": ("decimal", "Decimal"), "uuid": ("uuid", "UUID"), "path": ("pathlib", "PosixPath"),
    "purepath": ("pathlib", "PurePosixPath"), "frac": ("fractions", "Fraction"),
}
_ISO = {"datetime": "datetime", "date": "date", "time": "time"}
_SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Unsendable(Exception):
    """A value that cannot cross: too deep, too large, or no data."""


class Garbage(Exception):
    """A message that no honest writer sends."""


def dump(tree: Any) -> bytes:
    """The bytes of a message. Raises Unsendable past FRAME bytes."""
    try:
        data = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Unsendable(f"the value cannot be sent: {type(error).__name__}") from None
    if len(data) > FRAME:
        raise Unsendable(f"the value takes {len(data)} bytes, more than {FRAME}")
    if _brackets(data) > 4 * NODES:
        raise Unsendable("the value holds too many items")
    return data


def load(data: bytes) -> Any:
    """Read a message's JSON. Raises Garbage on anything else."""
    if len(data) > FRAME or _brackets(data) > 4 * NODES:
        raise Garbage(f"a message of {len(data)} bytes")
    try:
        return json.loads(data.decode("ascii"), parse_constant=_no_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Garbage(f"not a message: {type(error).__name__}") from None


def _brackets(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _no_constant(name: str) -> None:
    raise ValueError(name)


class Writer:
    """Values to trees.

    `opaque(value)` gives the tree of a value that is no data, or raises Unsendable. `known` maps id(value) of a
    mutable value that the other side already has to its number; with `number`, each new mutable value gets one
    (kept in `seen`), so that the other side can report how it changed it.
    """

    def __init__(self, opaque: Callable[[Any], Any], known: dict[int, int] | None = None, number: bool = False) -> None:
        self.opaque = opaque
        self.known = {} if known is None else known
        self.number = number
        self.seen: dict[int, Any] = {}
        self.left = NODES

    def write(self, value: Any, depth: int = DEPTH) -> Any:
        """The tree of a value. Raises Unsendable."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return _write_int(value)
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        self.left -= 1
        if depth <= 0 or self.left < 0:
            raise Unsendable("the value is nested too deep" if depth <= 0 else "the value holds too many items")
        if kind in (list, dict, set, bytearray):
            return self._mutable(value, kind, depth)
        if kind in (tuple, frozenset):
            return [kind.__name__, self._items(value, depth)]
        return self._other(value, kind, depth)

    def content(self, value: Any) -> Any:
        """The tree of what a mutable value holds, itself not taken as known."""
        return self._content(value, type(value), DEPTH)

    def _items(self, values: Any, depth: int) -> list[Any]:
        return [self.write(v, depth - 1) for v in values]

    def _mutable(self, value: Any, kind: Any, depth: int) -> Any:
        number = self.known.get(id(value), 0)
        if number:
            return ["ref", number]
        if self.number:
            number = len(self.seen) + 1
            self.seen[number] = value
            self.known[id(value)] = number
        return [kind.__name__, number, self._content(value, kind, depth)]

    def _content(self, value: Any, kind: Any, depth: int) -> Any:
        if kind is bytearray:
            return base64.b64encode(value).decode()
        if kind is dict:
            return [[self.write(k, depth - 1), self.write(v, depth - 1)] for k, v in list(value.items())]
        return self._items(list(value), depth)

    def _other(self, value: Any, kind: Any, depth: int) -> Any:
        if kind is bytes:
            return ["bytes", base64.b64encode(value).decode()]
        if kind is complex:
            return ["complex", self.write(value.real), self.write(value.imag)]
        if kind in (range, slice):
            return [kind.__name__, self._items([value.start, value.stop, value.step], depth)]
        if value is ... or value is NotImplemented:
            return ["const", repr(value)]
        return self._library(value, kind, depth)

    def _library(self, value: Any, kind: Any, depth: int) -> Any:
        for tag, (module, name) in _TEXTS.items():
            if kind is _loaded(module, name):
                return [tag, str(value)]
        for tag, name in _ISO.items():
            if kind is _loaded("datetime", name) and getattr(value, "tzinfo", None) in (None, _utc()):
                return [tag, value.isoformat(), getattr(value, "fold", 0)]
        if kind is _loaded("datetime", "timedelta"):
            return ["timedelta", [value.days, value.seconds, value.microseconds]]
        if kind in (_loaded("collections", "Counter"), _loaded("collections", "OrderedDict")):
            return [kind.__name__, self._content(value, dict, depth)]
        if kind is _loaded("collections", "deque"):
            return ["deque", self._items(list(value), depth), value.maxlen]
        if kind is _loaded("collections", "defaultdict"):
            return ["defaultdict", self._content(value, dict, depth), self.write(value.default_factory)]
        return self.opaque(value)


def _write_int(value: int) -> Any:
    if -SMALL < value < SMALL:
        return value
    if value.bit_length() > INT_BITS:
        raise Unsendable(f"an integer of {value.bit_length()} bits")
    return ["int", hex(value)]


def _loaded(module: str, name: str) -> Any:
    """A standard class if its module is loaded: a value of the class cannot exist otherwise."""
    return getattr(sys.modules.get(module), name, Unsendable)


def _utc() -> Any:
    return getattr(_loaded("datetime", "timezone"), "utc", None)


class Reader:
    """Trees to values; raises Garbage for what no writer sends.

    `opaque(tag, rest)` reads the tags that are not data. `objects` maps the numbers of mutable values to those
    values: a `ref` gives the very object, and what is read with a number is kept there.
    """

    def __init__(self, opaque: Callable[[str, list[Any]], Any], objects: dict[int, Any] | None = None) -> None:
        self.opaque = opaque
        self.objects = {} if objects is None else objects
        self.left = NODES

    def read(self, tree: Any, depth: int = DEPTH) -> Any:
        """The value of a tree."""
        kind = type(tree)
        if tree is None or kind in (bool, int, float, str):
            return tree
        self.left -= 1
        if kind is not list or not tree or type(tree[0]) is not str or depth <= 0 or self.left < 0:
            raise Garbage("a malformed value")
        try:
            return self._tagged(tree[0], tree[1:], depth)
        except (Garbage, Unsendable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a hostile tree makes a constructor raise is garbage
            raise Garbage(f"a malformed {tree[0][:40]}: {type(error).__name__}") from None

    def refill(self, target: Any, tree: Any) -> None:
        """Give a mutable value the content that the other side left in it."""
        try:
            self._fill(target, type(target), tree, DEPTH, clear=True)
        except Garbage:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise Garbage(f"a malformed change: {type(error).__name__}") from None

    def _items(self, trees: Any, depth: int) -> list[Any]:
        if type(trees) is not list:
            raise Garbage("items that are no list")
        return [self.read(t, depth - 1) for t in trees]

    def _pairs(self, trees: Any, depth: int) -> list[tuple[Any, Any]]:
        return [(self.read(k, depth - 1), self.read(v, depth - 1)) for k, v in trees]

    def _tagged(self, tag: str, rest: list[Any], depth: int) -> Any:
        if tag in MUTABLE:
            target: Any = {"list": list, "dict": dict, "set": set, "bytearray": bytearray}[tag]()
            number, content = rest
            if number:
                self.objects[number] = target
            self._fill(target, type(target), content, depth, clear=False)
            return target
        if tag == "ref":
            return self.objects[rest[0]]
        if tag in ("tuple", "frozenset"):
            items = self._items(rest[0], depth)
            return tuple(items) if tag == "tuple" else frozenset(items)
        scalar = _SCALARS.get(tag)
        if scalar is not None:
            return scalar(rest)
        return self._library(tag, rest, depth)

    def _fill(self, target: Any, kind: Any, tree: Any, depth: int, clear: bool) -> None:
        # Read first: the content may refer to the target itself, and a malformed one must change nothing.
        content: Any
        if kind is bytearray:
            content = _bytes(tree)
        elif kind is dict:
            content = dict(self._pairs(tree, depth))
        else:
            content = self._items(tree, depth)
        if kind in (list, bytearray):
            target[:] = content
            return
        if clear:
            target.clear()
        target.update(content)

    def _library(self, tag: str, rest: list[Any], depth: int) -> Any:
        if tag in ("range", "slice"):
            return (range if tag == "range" else slice)(*self._items(rest[0], depth))
        if tag == "complex":
            return complex(self.read(rest[0]), self.read(rest[1]))
        if tag in ("Counter", "OrderedDict"):
            return _class("collections", tag)(dict(self._pairs(rest[0], depth)))
        if tag == "deque":
            return _class("collections", tag)(self._items(rest[0], depth), self.read(rest[1]))
        if tag == "defaultdict":
            return _class("collections", tag)(self.read(rest[1]), dict(self._pairs(rest[0], depth)))
        return self.opaque(tag, rest)


def _class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read_int(rest: list[Any]) -> int:
    (text,) = rest
    if type(text) is not str or len(text) > INT_BITS // 4 + 8:
        raise Garbage("a malformed int")
    return int(text, 16)


def _read_text(tag: str) -> Callable[[list[Any]], Any]:
    def read(rest: list[Any]) -> Any:
        (text,) = rest
        # Decimal("1e999999999") and the like are cheap to hold; only the length of the text is bounded.
        if type(text) is not str or len(text) > 20_000:
            raise Garbage(f"a malformed {tag}")
        return _class(*_TEXTS[tag])(text)

    return read


def _read_fraction(rest: list[Any]) -> Any:
    (text,) = rest
    # Fraction("1e999999999") would compute that power: only what str(Fraction) writes is read.
    if type(text) is not str or len(text) > 20_000 or set(text) - set("0123456789-/"):
        raise Garbage("a malformed fraction")
    return _class("fractions", "Fraction")(text)


def _read_iso(tag: str) -> Callable[[list[Any]], Any]:
    def read(rest: list[Any]) -> Any:
        text, fold = rest
        value = _class("datetime", _ISO[tag]).fromisoformat(text)
        return value.replace(fold=fold) if fold else value

    return read


def _read_timedelta(rest: list[Any]) -> Any:
    days, seconds, micros = rest[0]
    return _class("datetime", "timedelta")(days, seconds, micros)


_SCALARS: dict[str, Callable[[list[Any]], Any]] = {
    "int": _read_int,
    "float": lambda rest: _SPECIAL_FLOATS[rest[0]],
    "bytes": lambda rest: _bytes(rest[0]),
    "const": lambda rest: {"Ellipsis": ..., "NotImplemented": NotImplemented}[rest[0]],
    "timedelta": _read_timedelta,
    **{tag: _read_text(tag) for tag in _TEXTS},
    **{tag: _read_iso(tag) for tag in _ISO},
    "frac": _read_fraction,
}
