"""What runners left behind: containers whose owner is dead are found by label and removed."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.sandbox import removal, service
from guerdon.runtime.sandbox.engine import LIST_SECONDS, Engine
from guerdon.runtime.sandbox.home import Home, default_home

LABEL, OWNER, MAKER = "guerdon", "guerdon.owner", "guerdon.maker"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One container of ours: its id, Podman's state for it, the labels, whether its owner lives."""

    id: str
    state: str
    labels: dict[str, str]
    owner_alive: bool


def own_labels() -> dict[str, str]:
    """The labels of what this process makes: process ids are used again, start times are not."""
    return {LABEL: "1", OWNER: f"{os.getpid()}:{service.start_time(os.getpid())}"}


def owner_alive(owner: str) -> bool:
    """Whether the process that a label names still is that process."""
    pid, _, started = owner.partition(":")
    return pid.isdigit() and bool(started) and service.start_time(int(pid)) == started


async def listed(engine: Engine) -> list[Leftover]:
    """All containers of ours, oldest first."""
    def ask(client: Any) -> list[Leftover]:
        # A string, not a list: podman-py 5.8 answers [] to the list form. Sparse, and read raw: `.status` of a
        # sparse container raises TypeError.
        found = client.containers.list(all=True, sparse=True, filters={"label": f"{LABEL}=1"})
        rows = sorted((one.attrs for one in found), key=lambda row: str(row.get("Created", "")))
        return [Leftover(str(row["Id"]), str(row.get("State", "")), dict(row.get("Labels") or {}),
                         owner_alive((row.get("Labels") or {}).get(OWNER, ""))) for row in rows]

    return await engine.blocking(ask, LIST_SECONDS)


async def sweep(engine: Engine) -> tuple[str, ...]:
    """Remove containers whose owner is dead; returns the ids removed. Raises SandboxFault."""
    removed = []
    for one in await listed(engine):
        if not one.owner_alive:
            await removal.remove(engine, one.id)
            removed.append(one.id)
    return tuple(removed)


async def connect(home: Home | None = None) -> Engine:
    """A connection for `sandbox ls` and `gc`, starting the service where needed. Raises SandboxFault."""
    home = home or default_home()
    report = await asyncio.to_thread(service.ensure_running, home)
    return Engine(home, report.url, [])


async def collect_garbage(home: Home | None = None) -> tuple[str, ...]:
    """`sandbox gc`: remove what dead runners left; the ids removed. Raises SandboxFault."""
    return await sweep(await connect(home))


async def list_sandboxes(home: Home | None = None) -> list[Leftover]:
    """`sandbox ls`. Raises SandboxFault."""
    return await listed(await connect(home))


__all__ = ["Leftover", "SandboxFault", "collect_garbage", "list_sandboxes", "listed", "sweep"]
