"""`guerdon sandbox ls|gc` and `guerdon service status|stop`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """List sandboxes, or remove those whose runner is gone."""
    parser = argparse.ArgumentParser("guerdon sandbox", description="Look after sandboxes.")
    parser.add_argument("action", choices=("ls", "gc"))
    options = parser.parse_args(argv)
    from guerdon.runtime.cli.trouble import attempt

    return attempt(_list if options.action == "ls" else _collect)


async def _list() -> int:
    from guerdon.runtime.sandbox.sweep import list_sandboxes

    for one in await list_sandboxes():
        owner = "runner alive" if one.owner_alive else "runner gone"
        row = " ".join(one.labels.get(f"guerdon.{k}", "") for k in ("task", "row", "role"))
        print(f"{one.id[:12]}  {one.state:<10} {owner:<13} {row}".rstrip())
    return 0


async def _collect() -> int:
    from guerdon.runtime.sandbox.sweep import collect_garbage

    removed = await collect_garbage()
    print(f"removed {len(removed)} sandboxes whose runner is gone")
    return 0


def service(argv: Sequence[str]) -> int:
    """Say how guerdon's own Podman service does, or stop it."""
    parser = argparse.ArgumentParser("guerdon service", description="guerdon's own Podman service.")
    parser.add_argument("action", choices=("status", "stop"))
    options = parser.parse_args(argv)
    from guerdon.runtime.sandbox.service import service_status, stop_service

    if options.action == "status":
        print(service_status())
    else:
        print("stopped" if stop_service() else "it was not running")
    return 0
