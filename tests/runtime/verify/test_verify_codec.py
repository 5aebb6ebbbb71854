"""The codec: exact types go round unchanged, and no bytes make the reader do anything but give data or refuse."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import math
import pathlib
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.runtime.verify.inside import codec
from guerdon.runtime.verify.inside.codec import Garbage, Reader, Unsendable, Writer

HASHABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
    | st.decimals(allow_nan=False) | st.fractions() | st.uuids() | st.dates() | st.timedeltas()
    | st.datetimes() | st.times() | st.datetimes(timezones=st.just(datetime.UTC)),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4), max_leaves=8)
VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE, max_size=3) | st.binary().map(bytearray),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(HASHABLE, inner, max_size=4), max_leaves=12)


def nothing_opaque(value, *rest):
    raise Unsendable(str(value))


def round_trip(value):
    data = codec.dump(Writer(nothing_opaque).write(value))
    return Reader(nothing_opaque).read(codec.load(data))


def same(a, b):
    """Equal, of exactly the same types, NaN like NaN, -0.0 unlike 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(k, m) and same(a[k], b[m]) for k, m in zip(a, b, strict=True))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    return a == b


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_data_goes_round_unchanged(value):
    assert same(round_trip(value), value)


@pytest.mark.parametrize("value", [
    collections.Counter("hello"), collections.OrderedDict([("b", 1), ("a", 2)]), collections.deque([1, 2], 5),
    pathlib.PurePosixPath("/a/b"), pathlib.Path("x"), range(1, 9, 2), slice(1, None), ..., NotImplemented,
    decimal.Decimal("NaN"), 1 << 100_000, -(1 << 64), "\ud800", {1: {2: (3, [4])}}, fractions.Fraction(-3, 7),
    uuid.UUID(int=7), datetime.timedelta(-1, 3, 5),
], ids=lambda v: type(v).__name__)  # fmt: skip
def test_library_values_go_round(value):
    got = round_trip(value)
    assert type(got) is type(value)
    assert got == value or str(got) == str(value)


class Liar(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class Number(int):
    pass


@pytest.mark.parametrize("value", [Liar("x"), Number(3), object(), len, Exception("x"), [Number(1)], {Liar("k"): 1}])
def test_subclasses_and_objects_are_no_data(value):
    with pytest.raises(Unsendable):
        round_trip(value)


def test_cycles_depth_and_size_are_refused():
    cycle: list[object] = []
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep, "x" * (codec.FRAME + 1), [[]] * (4 * codec.NODES), 1 << (codec.INT_BITS + 1)):
        with pytest.raises(Unsendable):
            round_trip(value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_garbage_or_a_tree(data):
    try:
        tree = codec.load(data)
        Reader(nothing_opaque).read(tree)
    except (Garbage, Unsendable):
        pass


TAGS = sorted([*codec._SCALARS, *codec.MUTABLE, "ref", "tuple", "frozenset", "range", "slice", "complex", "Counter",
               "OrderedDict", "deque", "defaultdict", "object", "exception", "nonsense"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
    | st.sampled_from(TAGS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    | st.tuples(st.sampled_from(TAGS), inner).map(list) | st.tuples(st.sampled_from(TAGS), inner, inner).map(list),
    max_leaves=15)


@settings(max_examples=400, deadline=None)
@given(TREES)
def test_hostile_trees_give_exact_types_or_garbage(tree):
    allowed = (type(None), bool, int, float, str, list, dict, set, bytearray, tuple, frozenset, bytes, complex, range,
               slice, type(...), type(NotImplemented), collections.Counter, collections.OrderedDict, collections.deque,
               collections.defaultdict, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PosixPath,
               pathlib.PurePosixPath, datetime.date, datetime.time, datetime.datetime, datetime.timedelta)
    try:
        value = Reader(nothing_opaque).read(json.loads(json.dumps(tree)))
    except (Garbage, Unsendable):
        return
    assert type(value) in allowed


def test_huge_fractions_and_integers_are_not_computed():
    for tree in (["frac", "1e999999999"], ["int", "0x" + "f" * 5_000_000], ["dec", "9" * 30_000]):
        with pytest.raises(Garbage):
            Reader(nothing_opaque).read(tree)


def test_changes_reach_the_very_object():
    original = {"a": [1]}
    writer = Writer(nothing_opaque, number=True)
    tree = writer.write(original)
    objects: dict[int, object] = {}
    other = Reader(nothing_opaque, objects).read(json.loads(json.dumps(tree)))
    other["a"].append(2)
    other["b"] = other
    back = Writer(nothing_opaque, {id(v): n for n, v in objects.items()})
    for number, value in objects.items():
        Reader(nothing_opaque, dict(writer.seen)).refill(writer.seen[number], back.content(value))
    assert original["a"] == [1, 2]
    assert original["b"] is original
