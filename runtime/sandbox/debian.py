"""A minimal Debian tree from the host's own apt sources, by mmdebstrap: no registry is needed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.sandbox import service
from guerdon.runtime.sandbox.spec import UID

EPOCH = "1700000000"
"""SOURCE_DATE_EPOCH: no file of the tree is newer, so equal packages give an equal tree."""
BUILD_SECONDS = 1800
BUILDER = "builder.pid"
SCANT = 600 * 1024 * 1024
"""Bytes that a tree and its tar file take: a build that fails with less free at its start fails for want of room,
whatever its last words are."""
SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
STRIPPED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*",
            "/usr/share/lintian/*")
NO_SPACE, NETWORK = ("no space left",), ("temporary failure", "could not resolve", "could not connect",
                                         "failed to fetch", "connection timed out", "unable to connect")
FINISH_PATH = "/.guerdon-finish"
# Users and names are fixed, and nothing of the host's network shows. This deletes and overwrites by absolute path,
# so it must never run on the host: mmdebstrap itself copies it into the tree (`upload`), it exists nowhere else
# under that name, and it is run by `chroot` into the tree, which fails for an empty or wrong "$1".
FINISH = f"""set -e
rm -f {FINISH_PATH}
grep -q '^agent:' /etc/passwd || echo 'agent:x:{UID}:{UID}:agent:/tmp:/bin/bash' >> /etc/passwd
grep -q '^agent:' /etc/group || echo 'agent:x:{UID}:' >> /etc/group
# Removed first: were one of them the host's own file, mounted, this would fail instead of emptying it.
rm -f /etc/hosts /etc/resolv.conf /etc/hostname
printf '127.0.0.1 localhost sandbox\\n::1 localhost\\n' > /etc/hosts
: > /etc/resolv.conf
echo sandbox > /etc/hostname
rm -rf /var/log/* /var/cache/* /var/lib/apt/lists/* /etc/apt/sources.list* /etc/machine-id
find /usr -name __pycache__ -prune -exec rm -rf {{}} +
# Compiled once for all sandboxes: under a read-only root nothing would ever be cached. By hash, not by time, so that
# equal sources give equal files.
if command -v python3 >/dev/null; then
  PYTHONHASHSEED=0 python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3* >/dev/null || true
fi
"""
FINISH_HOOK = f'chroot "$1" /bin/sh {FINISH_PATH}'


class Stopped(Exception):
    """The caller does not want the image any more."""


def codename() -> str:
    """Debian's code name on this host; `stable` on another distribution."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "stable"
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    name = facts.get("VERSION_CODENAME", "").strip('"')
    return name if facts.get("ID", "").strip('"') == "debian" and name else "stable"


@contextlib.contextmanager
def built(tmp: Path, packages: Sequence[str], stop: threading.Event | None = None) -> Iterator[Path]:
    """Build the tree as a tar file below `tmp`, gone afterwards. Takes about a minute; `stop` ends it early.

    The caller is the only one who builds below `tmp`. Raises Stopped, and SandboxFault
    `mmdebstrap-missing`, `network-failed`, `disk-full`, `image-failed`.
    """
    program = shutil.which("mmdebstrap")
    if program is None:
        raise SandboxFault("mmdebstrap-missing", "mmdebstrap is not installed: Debian images cannot be built",
                           "apt-get install -y --no-install-recommends mmdebstrap")
    _sweep(tmp)
    with tempfile.TemporaryDirectory(prefix="image-", dir=tmp, ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "image.tar"
        command = [program, *_options(packages, Path(folder)), codename(), str(target), *_mirror()]
        _build(command, packages, Path(folder), stop or threading.Event())
        yield target


def _sweep(tmp: Path) -> None:
    """Remove what a builder that was killed has left, and end its mmdebstrap, which would write on into it."""
    for left in tmp.glob("image-*"):
        with contextlib.suppress(OSError, ValueError):
            pid, started = (left / BUILDER).read_text().split()
            if service.start_time(int(pid)) == started:
                os.killpg(int(pid), signal.SIGKILL)
                time.sleep(0.1)
        shutil.rmtree(left, ignore_errors=True)


def _options(packages: Sequence[str], folder: Path) -> list[str]:
    """mmdebstrap's options: essential packages and those asked for, without papers."""
    finish = folder / "finish"
    finish.write_text(FINISH)
    return [
        "--variant=essential", "--mode=root" if os.geteuid() == 0 else "--mode=unshare", "--format=tar", "--quiet",
        *(f"--include={one}" for one in packages),
        *(f"--dpkgopt=path-exclude={path}" for path in STRIPPED),
        '--aptopt=Acquire::Languages "none"', "--aptopt=Apt::Install-Recommends false",
        f"--customize-hook=upload {finish} {FINISH_PATH}", f"--customize-hook={FINISH_HOOK}",
    ]


def _mirror() -> list[str]:
    """The host's own Debian sources; mmdebstrap copies the host's proxy settings by itself."""
    return [str(path) for path in SOURCES if path.exists()][:1] if codename() != "stable" else []


def _build(command: list[str], packages: Sequence[str], folder: Path, stop: threading.Event) -> None:
    """Run mmdebstrap, which writes into `folder`. Raises SandboxFault, Stopped."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    if os.geteuid() == 0:
        # Its tree goes with ours, however it ends. (Without root, another user of it must be able to come here.)
        env["TMPDIR"] = str(folder)
    full = shutil.disk_usage(folder).free < SCANT
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=env, start_new_session=True)
    try:
        # It leads a group of its own under this number.
        (folder / BUILDER).write_text(f"{process.pid} {service.start_time(process.pid)}")
        said = _said(process, stop)
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        raise _fault(said.decode(errors="replace") + (NO_SPACE[0] if full else ""), packages)


def _said(process: subprocess.Popen[bytes], stop: threading.Event) -> bytes:
    """What a program said by its end. Raises Stopped, SandboxFault past BUILD_SECONDS."""
    end = time.monotonic() + BUILD_SECONDS
    while True:
        try:
            return process.communicate(timeout=0.2)[0]
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise Stopped from None
            if time.monotonic() > end:
                raise SandboxFault("image-failed", f"mmdebstrap did not end in {BUILD_SECONDS} s",
                                   "see whether the mirror in /etc/apt answers") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that cleans up after itself, and make sure of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=3.0)


def _fault(said: str, packages: Sequence[str]) -> SandboxFault:
    """What mmdebstrap's complaint means."""
    low = said.lower()
    errors = [line for line in said.splitlines() if line.startswith("E:")] or said.strip().splitlines()[-1:]
    detail = (errors[0] if errors else "no reason given")[:300]
    if any(word in low for word in NO_SPACE):
        return SandboxFault("disk-full", f"no space left to build an image: {detail}",
                            "free space, or point GUERDON_HOME and TMPDIR at a larger disk")
    if "unable to locate package" in low or "has no installation candidate" in low:
        return SandboxFault("bad-recipe", f"the image's packages cannot all be found: {detail}",
                            f"see: apt-cache policy {' '.join(packages)}")
    if any(word in low for word in NETWORK):
        return SandboxFault("network-failed", f"the Debian mirror cannot be reached: {detail}",
                            "see that `apt-get update` works here; proxies are read from /etc/apt")
    return SandboxFault("image-failed", f"mmdebstrap failed: {detail}", "run it again; see `apt-get check`")
