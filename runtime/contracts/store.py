"""Where sealed episodes and content-addressed assets lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from guerdon.runtime.contracts.trajectory import EpisodeSpec, Sealed


class AssetReader(Protocol):
    """Content-addressed bytes: `sha256:…` to exactly those bytes."""

    def read(self, digest: str) -> bytes:
        """The bytes of a digest, checked; raises AssetFault when missing, unreadable or altered."""
        ...


class AssetFault(Exception):
    """An asset is missing, unreadable or not what its digest says; the message names file and remedy."""


class StoreFault(Exception):
    """The run's folder cannot be written or read, so nothing can be sealed; the message names the remedy."""


class FolderBusy(StoreFault):
    """Another process is writing the run's folder: it may be waited for."""


class Journal(Protocol):
    """The append-only store of one run: what was sealed stays, a torn last entry is found and dropped."""

    def seal(self, sealed: Sealed) -> bool:
        """Store an episode durably; False (and no change) when its key is sealed already."""
        ...

    def is_sealed(self, episode: EpisodeSpec) -> bool:
        """Whether an episode needs no running."""
        ...

    def scan(self) -> Iterator[Sealed]:
        """All sealed episodes in the order in which they were stored."""
        ...
