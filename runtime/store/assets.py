"""The content-addressed store: bytes under their sha256, checked whenever they are read."""

from __future__ import annotations

import re
from pathlib import Path

from guerdon.compiler.plan.canonical import digest as digest_of
from guerdon.runtime.contracts.home import home
from guerdon.runtime.contracts.store import AssetFault
from guerdon.runtime.store.durable import write_atomically

_DIGEST = re.compile(r"sha256:([0-9a-f]{2})([0-9a-f]{62})")


class AssetStore:
    """Assets in a folder, `sha256/ab/cdef…`; `$GUERDON_HOME/assets` unless another is given."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home() / "assets"

    def put(self, data: bytes) -> str:
        """Store some bytes and return their digest; stored already is done already. Raises AssetFault."""
        digest = digest_of(data)
        path = self.path(digest)
        try:
            if self._holds(path, digest):
                return digest
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [data])
        except OSError as wrong:
            raise AssetFault(
                f"the asset store {self.root} cannot be written: {wrong.strerror}; "
                "make room or set GUERDON_HOME to a folder that is yours"
            ) from wrong
        return digest

    def read(self, digest: str) -> bytes:
        """The bytes of a digest, checked. Raises AssetFault."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise AssetFault(
                f"the asset {digest} is not in {self.root} (looked for {path}); compile the pack again here"
            ) from None
        except OSError as wrong:
            raise AssetFault(f"asset {path} cannot be read: {wrong.strerror}; mend its rights") from wrong
        found = digest_of(data)
        if found != digest:
            raise AssetFault(
                f"asset file {path} was altered: it now holds {found}; delete it and compile the pack again"
            )
        return data

    def has(self, digest: str) -> bool:
        """Whether a digest is stored (its bytes are checked on reading only)."""
        return self.path(digest).is_file()

    def path(self, digest: str) -> Path:
        """Where a digest lies. Raises AssetFault on what is no digest: it may come from a hand-made plan."""
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise AssetFault(f"{digest[:100]!r} is no `sha256:` digest; compile the pack again")
        return self.root / "sha256" / match[1] / match[2]

    @staticmethod
    def _holds(path: Path, digest: str) -> bool:
        # An altered file is written over: putting is how a store is mended.
        return path.is_file() and digest_of(path.read_bytes()) == digest
