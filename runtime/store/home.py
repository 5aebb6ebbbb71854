"""Where guerdon keeps what outlives a run."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$GUERDON_HOME`, else /var/lib/guerdon for root, else ~/.local/share/guerdon. Not made here."""
    given = os.environ.get("GUERDON_HOME")
    if given:
        return Path(given).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/guerdon")
    return Path.home() / ".local" / "share" / "guerdon"
