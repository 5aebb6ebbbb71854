"""What this machine offers: found out, never assumed."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from guerdon.runtime.contracts.sandbox import SandboxFault

SUBID_LINE = "containers:1000000:1048576"
SUBID_FILES = (Path("/etc/subuid"), Path("/etc/subgid"))
INSTALL_PODMAN = "apt-get install -y --no-install-recommends podman crun catatonit mmdebstrap"


@dataclass(frozen=True, slots=True)
class Host:
    """Facts about the machine; `cgroup` is `v2`, `hybrid`, `v1` or `none`; `runtime` is crun, runc or ``."""

    podman: str | None
    runtime: str
    cgroup: str
    root: bool

    @property
    def hide_unified(self) -> bool:
        """Whether the service must not see /sys/fs/cgroup/unified: crun refuses a hybrid mount."""
        return self.cgroup == "hybrid" and self.runtime == "crun"


def look() -> Host:
    """Look at the machine."""
    can_unshare = os.geteuid() == 0 and shutil.which("unshare") is not None
    cgroup = cgroup_kind()
    runtime = choose_runtime(cgroup, can_unshare)
    return Host(shutil.which("podman"), runtime, cgroup, os.geteuid() == 0)


def cgroup_kind(mountinfo: str | None = None) -> str:
    """Tell `v2`, `hybrid` (v1 with an extra v2 mount), `v1` or `none` from the text of mountinfo."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    first = second = False
    for line in text.splitlines():
        fields, _, tail = line.partition(" - ")
        point, kind = fields.split(" ")[4], tail.split(" ")[0]
        if kind == "cgroup2":
            if point == "/sys/fs/cgroup":
                return "v2"
            second = True
        first = first or kind == "cgroup"
    if first:
        return "hybrid" if second else "v1"
    return "v2" if second else "none"


def choose_runtime(cgroup: str, can_unshare: bool) -> str:
    """crun where it can run, else runc, else the empty string."""
    crun, runc = shutil.which("crun"), shutil.which("runc")
    if crun and (cgroup != "hybrid" or can_unshare):
        return "crun"
    return "runc" if runc else ("crun" if crun else "")


def capped(name: int, wish: int) -> int:
    """A limit for containers that the service may set even without CAP_SYS_RESOURCE."""
    hard = resource.getrlimit(name)[1]
    return wish if hard == resource.RLIM_INFINITY else min(wish, hard)


def podman_version(podman: str) -> str:
    """The version of the podman program, or `unknown`."""
    done = subprocess.run([podman, "--version"], capture_output=True, text=True, timeout=30, check=False)
    words = done.stdout.split()
    return words[-1] if words else "unknown"


def subid_missing() -> list[Path]:
    """Those of /etc/subuid and /etc/subgid without a line for `containers`, which userns auto reads."""
    missing = []
    for path in SUBID_FILES:
        lines = path.read_text().splitlines() if path.exists() else []
        if not any(line.startswith("containers:") for line in lines):
            missing.append(path)
    return missing


def ensure_subids() -> list[Path]:
    """Add the lines that user namespaces need; returns the files changed. Raises SandboxFault `no-subids`."""
    missing = subid_missing()
    if not missing:
        return []
    files = " ".join(str(path) for path in missing)
    remedy = f"as root: echo {SUBID_LINE} | tee -a {files}"
    if os.geteuid() != 0:
        raise SandboxFault("no-subids", f"no line for `containers` in {files}: user namespaces cannot be made",
                           remedy)
    try:
        for path in missing:
            old = path.read_text() if path.exists() else ""
            with path.open("a") as out:
                out.write(("" if not old or old.endswith("\n") else "\n") + SUBID_LINE + "\n")
    except OSError as error:
        raise SandboxFault("no-subids", f"cannot write {files}: {error.strerror}", remedy) from error
    return missing


def require(host: Host) -> None:
    """Raise a SandboxFault that names what is missing for any sandbox to run here."""
    if host.podman is None:
        raise SandboxFault("podman-missing", "podman is not installed", INSTALL_PODMAN)
    if not host.runtime:
        raise SandboxFault("podman-missing", "neither crun nor runc is installed", "apt-get install -y crun")
    if host.cgroup == "hybrid" and host.runtime == "crun" and not (host.root and shutil.which("unshare")):
        raise SandboxFault("cgroup-unusable", "crun cannot run with cgroups in hybrid mode",
                           "apt-get install -y runc, or run as root with util-linux")
    if not host.root and host.cgroup != "v2":
        raise SandboxFault("cgroup-unusable",
                           f"rootless Podman on cgroup {host.cgroup} ignores memory, CPU and process limits",
                           "run as root, or boot with systemd.unified_cgroup_hierarchy=1")
