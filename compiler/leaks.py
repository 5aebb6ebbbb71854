"""What a verifier hides must not lie in the agent's sandbox as well (T404): told by content, whatever the names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from guerdon.compiler.pack import Pack
from guerdon.compiler.plan.canonical import digest

EMPTY = digest(b"")


@dataclass
class Leaks:
    """Looks into the files and folders of a pack, each once."""

    pack: Pack
    _held: dict[str, frozenset[str]] = field(default_factory=dict)

    def all_visible(self, hidden: Iterable[str], visible: Iterable[str]) -> bool:
        """Whether every file of `hidden` (empty ones apart) is also one of `visible`: addresses of assets.

        Some may be: tests that the agent sees often stand among the hidden ones as well.
        """
        secret = frozenset().union(*map(self.contents, hidden))
        return bool(secret) and secret <= frozenset().union(*map(self.contents, visible))

    def contents(self, address: str) -> frozenset[str]:
        """The digests of the files that an address stands for."""
        if address not in self._held:
            manifest = self.pack.assets.get(address.removeprefix("tree-"))
            if address.startswith("tree-") and isinstance(manifest, bytes):
                files = frozenset(str(entry[2]) for entry in json.loads(manifest))
            else:
                files = frozenset({address})
            self._held[address] = files - {EMPTY}
        return self._held[address]
