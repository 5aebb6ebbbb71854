"""Our own Podman service: started on demand, found again, restarted after a crash, stopped cleanly."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.sandbox import config, host
from guerdon.runtime.sandbox.home import Home, default_home, locked, unusable

IDLE_SECONDS = 900
"""The service ends by itself after this long without a connection, so that nothing of ours lasts for ever; an
open shell is a connection, and the next call starts the service again."""
START_SECONDS = 20.0
UNSHARED = "umount /sys/fs/cgroup/unified 2>/dev/null || true; exec \"$@\""


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """How the service was come by: `state` is `found running`, `started`, `restarted after it had died` or
    `given` (CONTAINER_HOST); `url` is where it answers; `notes` are further things done, in plain words."""

    state: str
    url: str
    notes: tuple[str, ...] = ()


def ensure_running(home: Home | None = None, *, stores: tuple[Path, ...] = ()) -> ServiceReport:
    """Find or start the service. Blocks up to about 20 s.

    `stores`: further, read-only image stores. Raises SandboxFault `podman-missing`, `cgroup-unusable`,
    `no-subids`, `home-unusable`, `service-down`.
    """
    given = given_url()
    if given is not None:
        if not answers(Path(given.removeprefix("unix://"))):
            raise SandboxFault("service-down", f"nothing answers at CONTAINER_HOST={given}",
                               "start that service, or unset CONTAINER_HOST to use our own")
        return ServiceReport("given", given)
    home = home or default_home()
    url = f"unix://{home.socket}"
    if answers(home.socket):
        return ServiceReport("found running", url)
    found = host.look()
    host.require(found)
    home.make()
    with locked(home, "service", timeout=60.0):
        if answers(home.socket):
            return ServiceReport("found running", url)
        try:
            return _start(home, found, url, stores)
        except OSError as error:
            raise unusable(home.root, error) from error


def given_url() -> str | None:
    """CONTAINER_HOST, if set; only unix sockets are served. Raises SandboxFault `service-unusable`."""
    given = os.environ.get("CONTAINER_HOST")
    if not given:
        return None
    if not given.startswith("unix://"):
        raise SandboxFault("service-unusable", f"CONTAINER_HOST={given} is not a unix socket",
                           "forward it to one: ssh -N -L /tmp/podman.sock:/run/podman/podman.sock HOST")
    return given


def _start(home: Home, found: host.Host, url: str, stores: tuple[Path, ...]) -> ServiceReport:
    """Start the service; the caller holds the lock and has seen that none answers."""
    notes = [f"added `{host.SUBID_LINE}` to {path}" for path in host.ensure_subids()]
    died = home.socket.exists()
    if died:
        # A socket file without a listener: the service was killed, or the machine was.
        home.socket.unlink(missing_ok=True)
    _end_recorded(home)
    if _forget_if_rebooted(home):
        notes.append("the machine was restarted since: containers of before are gone")
        died = False
    config.write(home, found, stores)
    process = _spawn(home, found)
    end = time.monotonic() + START_SECONDS
    while not answers(home.socket):
        if process.poll() is not None or time.monotonic() > end:
            _signal(process.pid)
            raise SandboxFault("service-down", f"podman's service did not start: {_last_line(home.log)}",
                               f"look into {home.log}")
        time.sleep(0.02)
    home.pid_file.write_text(f"{process.pid} {start_time(process.pid)}\n")
    # Let the interpreter not warn of a child that is meant to outlive it.
    process.returncode = 0
    return ServiceReport("restarted after it had died" if died else "started", url, tuple(notes))


def _spawn(home: Home, found: host.Host) -> subprocess.Popen[bytes]:
    """Start `podman system service`, detached from our terminal, session and standard streams."""
    command = [str(found.podman), "system", "service", f"--time={IDLE_SECONDS}", f"unix://{home.socket}"]
    if found.hide_unified:
        unshare = shutil.which("unshare") or "unshare"
        command = [unshare, "-m", "--propagation", "private", "sh", "-c", UNSHARED, "sh", *command]
    env = {key: value for key, value in os.environ.items() if key not in ("CONTAINER_HOST", "NOTIFY_SOCKET")}
    env |= {
        "CONTAINERS_CONF": str(home.config / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(home.config / "storage.conf"),
        "TMPDIR": str(home.tmp),
    }
    with home.log.open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd="/",
                                start_new_session=True)


def answers(path: Path, timeout: float = 5.0) -> bool:
    """Whether a Podman service answers a ping at this socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout)
            sock.connect(str(path))
            sock.sendall(b"GET /_ping HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
            return sock.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def service_status(home: Home | None = None) -> str:
    """`running`, `stopped`, or `died` (a socket file is left that nothing listens on)."""
    home = home or default_home()
    if answers(home.socket):
        return "running"
    return "died" if home.socket.exists() else "stopped"


def stop_service(home: Home | None = None) -> bool:
    """Stop our service (never a given one); containers stay. True when one was running."""
    home = home or default_home()
    if not home.lock_dir.exists():
        return False
    with locked(home, "service", timeout=60.0):
        was = answers(home.socket)
        _end_recorded(home)
        home.socket.unlink(missing_ok=True)
        return was


def _end_recorded(home: Home) -> None:
    """End the process that the pid file names, if it still is that process."""
    pid = service_pid(home)
    if pid is None:
        return
    _signal(pid, signal.SIGTERM)
    end = time.monotonic() + 5.0
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    _signal(pid)
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    home.pid_file.unlink(missing_ok=True)


def service_pid(home: Home) -> int | None:
    """The service's process id, if it lives (its start time is compared: ids are used again)."""
    try:
        pid, started = home.pid_file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if _alive(int(pid)) and start_time(int(pid)) == started else None


def _alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def start_time(pid: int) -> str:
    """A process's start time in clock ticks since boot (field 22 of stat), `` when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _signal(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal one process of ours; its containers' monitors are in sessions of their own and live on."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _forget_if_rebooted(home: Home) -> bool:
    """Drop run-time state of an earlier boot; Podman would take its containers for running."""
    now = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    mark = home.root / "boot-id"
    before = mark.read_text().strip() if mark.exists() else now
    if before != now:
        shutil.rmtree(home.run, ignore_errors=True)
        home.run.mkdir(mode=0o700, exist_ok=True)
    mark.write_text(now)
    return before != now


def _last_line(path: Path) -> str:
    """The last line of the service's log."""
    lines = path.read_bytes()[-2000:].decode(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it said nothing"
