"""The one folder in which guerdon keeps what outlives a run: assets, and its own Podman."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$GUERDON_HOME`, else /var/lib/guerdon for root, else guerdon below the user's data folder. Not made here."""
    given = os.environ.get("GUERDON_HOME")
    if given:
        return Path(given).expanduser().absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/guerdon")
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "guerdon"
