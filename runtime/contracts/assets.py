"""Reading a plan's file and tree assets as files to write (format: compiler/plan/schema.py)."""

from __future__ import annotations

import json
import posixpath

from guerdon.runtime.contracts.sandbox import PutFile
from guerdon.runtime.contracts.store import AssetFault, AssetReader

TREE = "tree-sha256:"


def expand(assets: AssetReader, path: str, digest: str) -> tuple[PutFile, ...]:
    """The files that an asset becomes at an absolute path: one for a file, all below `path` for a tree.

    Raises AssetFault when something is missing or altered, or when a manifest names a path outside its tree.
    """
    if not digest.startswith(TREE):
        return (PutFile(path, assets.read(digest)),)
    manifest = assets.read("sha256:" + digest.removeprefix(TREE))
    return tuple(
        PutFile(posixpath.join(path, name), assets.read(content), mode)
        for name, mode, content in _entries(manifest, digest)
    )


def _entries(manifest: bytes, digest: str) -> list[tuple[str, int, str]]:
    try:
        rows = json.loads(manifest)
        entries = [(str(name), int(mode), str(content)) for name, mode, content in rows]
    except (ValueError, TypeError) as wrong:
        raise AssetFault(f"asset {digest} is no folder manifest ({wrong}); compile the pack again") from wrong
    for name, _, _ in entries:
        if name.startswith("/") or ".." in name.split("/") or not name or "\0" in name:
            raise AssetFault(f"asset {digest} names {name!r}, outside its folder; compile the pack again")
    return entries
