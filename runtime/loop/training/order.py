"""Which rows a step takes: a seeded order of every epoch, so a step's rows follow from its number alone."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

from guerdon.compiler.plan.canonical import Json, dumps

Item = TypeVar("Item")


def seed(*parts: Json) -> int:
    """A 63-bit seed that is a function of its parts."""
    return int.from_bytes(hashlib.sha256(dumps(list(parts))).digest()[:8], "big") >> 1


def taken(items: Sequence[Item], step: int, count: int, run_seed: int) -> list[Item]:
    """The `count` items of one step (from 0): each epoch goes through all items once, in an order of its own."""
    at = step * count
    found: list[Item] = []
    while len(found) < count:
        epoch, place = divmod(at + len(found), len(items))
        order = list(range(len(items)))
        random.Random(seed("order", run_seed, epoch)).shuffle(order)
        found += [items[i] for i in order[place : place + count - len(found)]]
    return found
