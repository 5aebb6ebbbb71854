"""Keys and values of sessions, in a pool of slots of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from guerdon.runtime.learner.shape import ModelShape

_STEP = 64


class Cache:
    """One session's part of the pool: the ids whose keys and values stand in its slot."""

    __slots__ = ("ids", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.ids: list[int] = []

    def common(self, ids: Sequence[int]) -> int:
        """Length of the longest common prefix with `ids`."""
        limit = min(len(self.ids), len(ids))
        if tuple(self.ids[:limit]) == tuple(ids[:limit]):
            return limit
        return next(at for at in range(limit) if self.ids[at] != ids[at])


class CachePool:
    """Slots for the keys and values of sessions; both the number of slots and their length grow on demand.

    `planes[layer]` is [slots, kv_heads, 2, capacity, head_dim], 2 being key and value. The rows of a batch lie in
    the first slots, so that attention reads them as one view; sessions change places when a batch needs it.
    """

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device
        self.clear()

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._sessions: dict[str, Cache] = {}
        self._slots: list[Cache | None] = []
        self._allocate(0, 0)

    def _allocate(self, slots: int, capacity: int) -> None:
        shape = self._shape
        size = (shape.layers, slots, shape.kv_heads, 2, capacity, shape.head_dim)
        # Zeros, because what attention masks out is still multiplied by 0, and 0 times NaN is NaN.
        self._memory = torch.zeros(size, dtype=self._dtype, device=self._device)
        self.planes: tuple[Tensor, ...] = self._memory.unbind(0)
        self.capacity = capacity

    def reserve(self, capacity: int) -> None:
        """Make every slot at least `capacity` ids long, and as many as there are sessions."""
        slots = self._memory.shape[1]
        if len(self._slots) <= slots and capacity <= self.capacity:
            return
        if len(self._slots) > slots:
            slots = max(len(self._slots), slots + slots // 4)
        # Up to the next multiple of the step, where the context allows it.
        capacity = max(self.capacity, min(-(-capacity // _STEP) * _STEP, self._shape.context))
        old, held = self._memory, max((len(cache.ids) for cache in self._sessions.values()), default=0)
        self._allocate(slots, capacity)
        self._memory[:, : old.shape[1], :, :, :held].copy_(old[:, :, :, :, :held])

    def grow(self) -> None:
        """Lengthen the slots by a half: a turn that goes on longer than expected pays for few copies."""
        self.reserve(min(self.capacity + max(self.capacity // 2, _STEP), self._shape.context))

    def arrange(self, sessions: Sequence[str]) -> list[Cache]:
        """The caches of `sessions`, moved to slots 0, 1, 2 ... in this order; new ones are empty."""
        caches = [self._sessions.get(session) or self._open(session) for session in sessions]
        self.reserve(self.capacity)
        for slot in range(len(caches)):
            self.swap(caches[slot].slot, slot)
        return caches

    def known(self, session: str, ids: Sequence[int]) -> int:
        """How many of `ids`, from the first, the session's cache holds."""
        cache = self._sessions.get(session)
        return cache.common(ids) if cache else 0

    def _open(self, session: str) -> Cache:
        slot = self._slots.index(None) if None in self._slots else len(self._slots)
        cache = Cache(slot)
        if slot == len(self._slots):
            self._slots.append(cache)
        else:
            self._slots[slot] = cache
        self._sessions[session] = cache
        return cache

    def swap(self, one: int, other: int) -> None:
        """Exchange what two slots hold."""
        if one == other:
            return
        first, second = self._slots[one], self._slots[other]
        ahead, back = (len(cache.ids) if cache else 0 for cache in (first, second))
        moved = self._memory[:, one, :, :, :ahead].clone()
        self._memory[:, one, :, :, :back] = self._memory[:, other, :, :, :back]
        self._memory[:, other, :, :, :ahead] = moved
        self._slots[one], self._slots[other] = second, first
        if first:
            first.slot = other
        if second:
            second.slot = one

    def copy(self, source: Cache, target: Cache) -> None:
        """Make one session's cache hold what another's does."""
        length = len(source.ids)
        self._memory[:, target.slot, :, :, :length] = self._memory[:, source.slot, :, :, :length]
        target.ids = list(source.ids)

    def forget(self, sessions: Iterable[str]) -> None:
        """Free the slots of sessions; when none is left, the memory too."""
        for session in sessions:
            cache = self._sessions.pop(session, None)
            if cache is not None:
                self._slots[cache.slot] = None
        while self._slots and self._slots[-1] is None:
            self._slots.pop()
        if not self._slots:
            self.clear()

    def bytes(self) -> int:
        """Memory taken."""
        return self._memory.numel() * self._memory.element_size()
