"""From a SandboxSpec to the container that Podman makes: everything not needed is taken away."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxSpec

UID = 1000
"""The user that an agent's or candidate's processes run as, inside the sandbox."""
USER, ROOT = f"{UID}:{UID}", "0:0"
ID_RANGE = 1024
"""User ids of one sandbox: small, so that many fit into the range of /etc/subuid."""
VERIFY_CAPS = ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER")
GRADER = "/grader"
SHM = "/dev/shm"
SHM_BYTES = 16 * 1024 * 1024
CPU_PERIOD = 100_000
OOM_SCORE = 500
"""Of all that is started in a sandbox, against 0 of PID 1: memory that runs out ends the user's processes first. A
process may take it back; `sandbox-oom` then says what became of the sandbox."""
OOM_FIRST = f"echo {OOM_SCORE} 2>/dev/null >/proc/self/oom_score_adj"
# PID 1 runs as uid 0 (without capabilities where the role is `agent`), so that no process of uid 1000 can signal
# or trace it; a shell that waits also reaps the orphans that fall to it.
PID_1 = ("/bin/sh", "-c", "while :; do sleep infinity; done")
BASE_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp",
            "LANG": "C.UTF-8", "TZ": "UTC"}
FORBIDDEN = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr",
             "/usr/bin", "/usr/lib", GRADER)


def mounts(spec: SandboxSpec) -> dict[str, tuple[int, str]]:
    """The writable folders: path to (bytes, mode). Raises SandboxFault `bad-spec`."""
    found = {"/tmp": (spec.resources.disk, "1777"), SHM: (min(SHM_BYTES, spec.resources.disk), "1777")}
    for path in (spec.workdir, *spec.scratch):
        if not path.startswith("/") or posixpath.normpath(path) != path or path in FORBIDDEN or "\0" in path:
            raise SandboxFault("bad-spec", f"{path!r} cannot be a writable folder of a sandbox",
                               "use an absolute, normalised path outside the system's folders")
        found.setdefault(path, (spec.resources.disk, "0755"))
    if spec.role == "verify":
        found[GRADER] = (spec.resources.disk, "0700")
    return found


def owned(spec: SandboxSpec) -> tuple[str, ...]:
    """The writable folders that belong to uid 1000."""
    return tuple(dict.fromkeys(path for path in (spec.workdir, *spec.scratch) if path != "/tmp"))


def memory_limit(spec: SandboxSpec) -> int:
    """Bytes that the kernel lets the sandbox hold: its memory, and each writable folder filled to the brim.

    A tmpfs is memory: were it not counted, a full disk would kill the process that reads the results.
    """
    return spec.resources.memory + sum(size for size, _ in mounts(spec).values())


def container(
    spec: SandboxSpec, labels: Mapping[str, str], seccomp: Path | None, cgroup: str = "v2"
) -> dict[str, Any]:
    """The raw SpecGenerator (podman-py's own create drops most of these keys)."""
    memory = memory_limit(spec)
    body: dict[str, Any] = {
        "image": spec.image,
        "entrypoint": [],
        "command": list(PID_1),
        "user": ROOT,
        "work_dir": "/",
        "env": {**BASE_ENV, **dict(spec.env)},
        "unsetenvall": True,
        "httpproxy": False,
        "labels": dict(labels),
        "hostname": "sandbox",
        "stop_timeout": 0,
        "image_volume_mode": "ignore",
        "use_image_hosts": True,
        "use_image_resolve_conf": True,
        "read_only_filesystem": True,
        "no_new_privileges": True,
        "cap_drop": ["all"],
        "cap_add": [f"CAP_{cap}" for cap in VERIFY_CAPS] if spec.role == "verify" else [],
        "userns": {"nsmode": "auto"},
        # Without this second key Podman silently makes no user namespace at all.
        "idmappings": {"AutoUserNs": True, "AutoUserNsOpts": {"Size": ID_RANGE}},
        "netns": {"nsmode": "none"},
        "ipcns": {"nsmode": "none"},
        "pidns": {"nsmode": "private"},
        "utsns": {"nsmode": "private"},
        "cgroupns": {"nsmode": "private"},
        "mounts": [_tmpfs(path, size, mode) for path, (size, mode) in mounts(spec).items()],
        "resource_limits": {
            "memory": {"limit": memory, "swap": memory},
            "cpu": {"quota": max(1000, spec.resources.cpu_milli * CPU_PERIOD // 1000), "period": CPU_PERIOD},
            "pids": {"limit": spec.resources.pids},
        },
    }
    if seccomp is not None:
        body["seccomp_profile_path"] = str(seccomp)
    if cgroup != "v2":
        # On cgroup v1 crun makes /sys/fs/cgroup a small tmpfs that anyone may write.
        body["mask"] = ["/sys/fs/cgroup"]
    return body


def _tmpfs(path: str, size: int, mode: str) -> dict[str, Any]:
    """One sized tmpfs; `notmpcopyup`: what the image has there is not copied into the agent's memory."""
    options = ["rw", "nosuid", "nodev", f"size={size}", f"mode={mode}", "notmpcopyup"]
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options}
