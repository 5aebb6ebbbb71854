"""What `guerdon doctor` says of this machine: each finding with the one line that mends it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import podman

from guerdon.runtime.contracts.sandbox import Finding, SandboxFault
from guerdon.runtime.sandbox import config, host, service, sweep
from guerdon.runtime.sandbox.engine import Engine
from guerdon.runtime.sandbox.home import Home, default_home

DISK_NEEDED = 5 * 1024**3
"""Bytes for a few images and their build."""


async def examine(home: Home | None = None) -> list[Finding]:
    """Look at all that sandboxes need. Starts the service if it can; removes nothing and raises nothing."""
    home = home or default_home()
    found = host.look()
    findings = [check(found) for check in CHECKS]
    findings.append(_disk(home))
    findings += await _service(home)
    return findings


def _podman(found: host.Host) -> Finding:
    if found.podman is None:
        return Finding("podman", False, "not installed", host.INSTALL_PODMAN)
    version = host.podman_version(found.podman)
    return Finding("podman", True, f"{version} at {found.podman}, through podman-py {podman.__version__}",
                   extra={"version": version})


def _runtime(found: host.Host) -> Finding:
    if not found.runtime:
        return Finding("runtime", False, "neither crun nor runc is installed", "apt-get install -y crun")
    how = ", in a mount namespace without the hybrid cgroup mount" if found.hide_unified else ""
    return Finding("runtime", True, found.runtime + how)


def _cgroup(found: host.Host) -> Finding:
    try:
        host.require(found)
    except SandboxFault as fault:
        if fault.kind == "cgroup-unusable":
            return Finding("cgroup", False, fault.message, fault.remedy)
    if found.cgroup == "none":
        return Finding("cgroup", False, "no cgroup is mounted: no limit would hold", "mount cgroup2 at /sys/fs/cgroup")
    return Finding("cgroup", True, {"hybrid": "v1 with an extra v2 mount (hybrid)"}.get(found.cgroup, found.cgroup))


def _user(found: host.Host) -> Finding:
    return Finding("user", True, "root" if found.root else "rootless", extra={"root": str(found.root).lower()})


def _subids(found: host.Host) -> Finding:
    missing = host.subid_missing()
    files = " ".join(str(path) for path in missing)
    if missing:
        return Finding("subuid", found.root, f"no line for `containers` in {files}"
                       + ("; it is added on first use" if found.root else ""),
                       f"as root: echo {host.SUBID_LINE} | tee -a {files}")
    return Finding("subuid", True, "ranges for `containers` are set")


def _mmdebstrap(found: host.Host) -> Finding:
    path = shutil.which("mmdebstrap")
    if path is None:
        return Finding("mmdebstrap", False, "not installed: Debian images cannot be built",
                       "apt-get install -y --no-install-recommends mmdebstrap")
    return Finding("mmdebstrap", True, path)


def _seccomp(found: host.Host) -> Finding:
    if config.seccomp_profile() is None:
        return Finding("seccomp", False, "the distribution's default profile is missing: nested user namespaces "
                       "would be allowed", "apt-get install -y golang-github-containers-common")
    return Finding("seccomp", True, "default profile, less namespaces and mounts")


CHECKS: tuple[Callable[[host.Host], Finding], ...] = (
    _podman, _runtime, _cgroup, _user, _subids, _mmdebstrap, _seccomp,
)


def _disk(home: Home) -> Finding:
    """Free space where images go."""
    place = next((path for path in (home.root, *home.root.parents) if path.exists()), Path("/"))
    free = shutil.disk_usage(place).free
    text = f"{free / 1024**3:.1f} GiB free at {home.root}"
    if free < DISK_NEEDED:
        return Finding("disk", False, text, "free space, or point GUERDON_HOME at a larger disk")
    return Finding("disk", True, text)


async def _service(home: Home) -> list[Finding]:
    """Whether the service answers, and what dead runners left."""
    try:
        report = await asyncio.to_thread(service.ensure_running, home)
        engine = Engine(home, report.url, [])
        version = await engine.blocking(_version)
        rows = await sweep.listed(engine)
    except SandboxFault as fault:
        return [Finding("service", False, fault.message, fault.remedy)]
    except Exception as error:  # noqa: BLE001 (a doctor reports whatever is wrong)
        return [Finding("service", False, f"podman's service misbehaves: {error}", f"look into {home.log}")]
    dead = [row for row in rows if not row.owner_alive]
    left = Finding("leftovers", not dead, f"{len(dead)} sandboxes of dead runners, {len(rows) - len(dead)} in use",
                   "guerdon sandbox gc" if dead else "")
    return [Finding("service", True, f"{report.state}, Podman {version} at {report.url}"), left]


def _version(client: Any) -> str:
    return str(client.version()["Version"])
