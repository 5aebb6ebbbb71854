"""What is done to a local sandbox from outside, through /proc: prompt, and beyond the reach of what runs inside.

Each function answers False where the sandbox's processes cannot be seen (a service on another machine, a nested
user namespace); the caller then takes the slower way through an exec.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.sandbox.spec import UID

PASS_SECONDS = 10.0
KEEPER = b"sleep\0infinity\0"


def ours(pid: int, container: str) -> bool:
    """Whether `pid` is a process of this container (ids are used again; the cgroup's name is not)."""
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def kill_init(pid: int, container: str) -> bool:
    """Kill PID 1 of the sandbox, and with it, by the kernel, all of the sandbox."""
    if pid <= 1:
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Checked after the fd is open: it cannot come to name another process.
        if not ours(pid, container):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def await_init(pid: int, container: str, timeout: float = 20.0) -> bool:
    """Wait until PID 1 is our shell with its `sleep`: before, the runtime's own start-up still runs in that
    process, and an exec that joins it is refused now and then. False where it cannot be seen or does not come."""
    end = time.monotonic() + timeout
    while ours(pid, container) and time.monotonic() < end:
        if _init_children(pid):
            return True
        time.sleep(0.001)
    return False


def own_folders(pid: int, container: str, paths: tuple[str, ...]) -> bool:
    """Give folders of a fresh sandbox to its uid 1000."""
    if os.geteuid() != 0 or not ours(pid, container):
        return False
    try:
        uid, gid = _mapped(pid, "uid_map"), _mapped(pid, "gid_map")
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        for path in paths:
            with _opened(root, path) as fd:
                os.fchown(fd, uid, gid)
        return True
    except OSError:
        return False
    finally:
        os.close(root)


def _mapped(pid: int, name: str, inner: int = UID) -> int:
    """The outer id of an inner one."""
    for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
        first, outer, count = (int(word) for word in line.split())
        if first <= inner < first + count:
            return outer + inner - first
    raise ValueError(f"id {inner} is not mapped")


@contextlib.contextmanager
def _opened(root: int, path: str) -> Iterator[int]:
    """Open a folder below `root` without following a link on the way."""
    fd = os.dup(root)
    try:
        for part in path.strip("/").split("/"):
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def kill_inside(pid: int, container: str, *, keep_root: bool) -> bool:
    """Kill the sandbox's processes but for PID 1's own, and prove them gone.

    `keep_root` spares what runs as uid 0 of the sandbox (a verifier's harness). While it works no process of the
    sandbox can fork, so that a fork bomb cannot outrun it. Raises SandboxFault `kill-failed`.
    """
    if not ours(pid, container):
        return False
    try:
        space = Path(f"/proc/{pid}/ns/pid").stat().st_ino
        outer_root = _mapped(pid, "uid_map", 0)
    except (OSError, ValueError):
        return False
    spared = _init_children(pid)
    with _no_forks(pid):
        end = time.monotonic() + PASS_SECONDS
        while True:
            found = [one for one in _members(space) if one != pid and one not in spared
                     and not (keep_root and _only_uid(one, outer_root))]
            if not found:
                return True
            if time.monotonic() > end:
                raise SandboxFault("kill-failed", f"{len(found)} processes of {container[:12]} do not die",
                                   "see whether the machine is overloaded, then run the episode again")
            for one in found:
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)
            time.sleep(0.001)


def _members(space: int) -> list[int]:
    """Living processes of a pid namespace (zombies are dead: only their parent can bury them)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.joinpath("ns/pid").stat().st_ino != space:
                continue
            state = entry.joinpath("stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state not in (b"Z", b"X"):
            found.append(int(entry.name))
    return found


def _init_children(pid: int) -> set[int]:
    """PID 1's own `sleep`, told from adopted orphans by its user and its whole command line.

    Were it killed while no fork is allowed, PID 1's shell would end, and the sandbox with it.
    """
    try:
        outer_root = _mapped(pid, "uid_map", 0)
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(word) for word in words
                if _only_uid(int(word), outer_root) and _command(int(word)) == KEEPER}
    except (OSError, ValueError):
        return set()


def _command(pid: int) -> bytes:
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _only_uid(pid: int, uid: int) -> bool:
    """Whether all four user ids of a process are `uid`."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    line = next((line for line in text.splitlines() if line.startswith("Uid:")), "")
    return line.split()[1:] == [str(uid)] * 4


@contextlib.contextmanager
def _no_forks(pid: int) -> Iterator[None]:
    """Lower the cgroup's process limit to nothing for a moment, where that cgroup can be found."""
    path = _pids_max(pid)
    before = None
    if path is not None:
        with contextlib.suppress(OSError):
            before = path.read_text()
            path.write_text("0")
    try:
        yield
    finally:
        if path is not None and before is not None:
            with contextlib.suppress(OSError):
                path.write_text(before)


def _pids_max(pid: int) -> Path | None:
    """The file with the process limit of a process's cgroup (v1 or v2)."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    tried = []
    if "pids" in groups:
        tried.append(Path(f"/sys/fs/cgroup/pids{groups['pids']}/pids.max"))
    if "" in groups:
        tried.append(Path(f"/sys/fs/cgroup{groups['']}/pids.max"))
    return next((path for path in tried if path.exists()), None)
