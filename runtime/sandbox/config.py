"""The configuration files of our own Podman service: nothing is read from or written to the user's."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

from guerdon.runtime.sandbox.home import Home
from guerdon.runtime.sandbox.host import Host, capped

SECCOMP_DEFAULTS = (Path("/etc/containers/seccomp.json"), Path("/usr/share/containers/seccomp.json"))
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET."""
ENOSYS, EPERM = 38, 1
REFUSED = ("unshare", "setns", "mount", "umount", "umount2", "mount_setattr", "move_mount", "open_tree", "fsopen",
           "fsconfig", "fsmount", "fspick", "pivot_root", "chroot", "bpf", "perf_event_open", "userfaultfd",
           "keyctl", "add_key", "request_key", "io_uring_setup", "io_uring_enter", "io_uring_register")


def write(home: Home, host: Host, stores: tuple[Path, ...] = ()) -> None:
    """Write containers.conf, storage.conf and the seccomp profile. `stores`: further read-only image stores."""
    (home.config / "containers.conf").write_text(containers_conf(home, host))
    (home.config / "storage.conf").write_text(storage_conf(home, stores))
    (home.config / "policy.json").write_text('{"default":[{"type":"insecureAcceptAnything"}]}\n')
    profile = seccomp_profile()
    if profile is not None:
        seccomp_path(home).write_text(json.dumps(profile))


def seccomp_path(home: Home) -> Path:
    """Where the hardened seccomp profile lies (absent where the distribution ships no default)."""
    return home.config / "seccomp.json"


def containers_conf(home: Home, host: Host) -> str:
    """The text of containers.conf."""
    files, processes = capped(resource.RLIMIT_NOFILE, 8192), capped(resource.RLIMIT_NPROC, 4096)
    lines = [
        "[containers]",
        # Both must be given: without CAP_SYS_RESOURCE Podman's own defaults fail every start.
        f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]',
        'log_driver = "none"',
        'tz = ""',
        'cgroupns = "private"',
        "[engine]",
        'cgroup_manager = "cgroupfs"',
        'events_logger = "none"',
        f'runtime = "{host.runtime}"',
        # Each exec leaves a conmon behind for this many seconds; the default is 300.
        "exit_command_delay = 1",
        # The default lock segment in /dev/shm is shared with the user's own Podman.
        'lock_type = "file"',
        f'tmp_dir = "{home.run}/libpod"',
        f'static_dir = "{home.storage}/libpod"',
        f'volume_path = "{home.storage}/volumes"',
        f'image_copy_tmp_dir = "{home.tmp}"',
    ]
    return "\n".join(lines) + "\n"


def storage_conf(home: Home, stores: tuple[Path, ...]) -> str:
    """The text of storage.conf."""
    more = ", ".join(f'"{path}"' for path in stores)
    return (
        f'[storage]\ndriver = "overlay"\ngraphroot = "{home.storage}"\nrunroot = "{home.run}/storage"\n'
        f"[storage.options]\nadditionalimagestores = [{more}]\n"
    )


def seccomp_profile() -> dict[str, Any] | None:
    """The distribution's default profile, less what makes namespaces and mounts; None where there is none.

    Podman's default lets a process without capabilities make user namespaces, which opens kernel surface that
    nothing in a sandbox needs.
    """
    source = next((path for path in SECCOMP_DEFAULTS if path.exists()), None)
    return None if source is None else harden(json.loads(source.read_text()))


def harden(profile: dict[str, Any]) -> dict[str, Any]:
    """`profile` with namespaces, mounts and little-used kernel surface refused, whatever it allowed."""
    taken = {*REFUSED, "clone", "clone3"}
    rules = []
    for rule in profile["syscalls"]:
        names = [name for name in rule.get("names", [rule.get("name")]) if name not in taken]
        if names:
            kept = {key: value for key, value in rule.items() if key != "name"}
            rules.append({**kept, "names": names})
    plain = {"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    rules += [
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [plain]},
        # ENOSYS makes the C library fall back to clone, whose flags can be seen by the filter.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": ENOSYS},
        {"names": list(REFUSED), "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": EPERM},
    ]
    return {**profile, "syscalls": rules}
