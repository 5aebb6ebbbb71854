"""Rights: how the trusted parent starts a process of uid 1000, and how it ends all of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATH = "/usr/local/bin:/usr/bin:/bin"
CLEAN_ENV = {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)
_fork, _kill = os.fork, os.kill


@dataclass(frozen=True)
class Rights:
    """Who the candidate is, and its limits: processes, bytes of address space and of one file (0 = no limit)."""

    uid: int = 1000
    gid: int = 1000
    processes: int = 64
    memory: int = 0
    file: int = 64 * 1024 * 1024

    def dropper(self) -> Callable[[], None]:
        """A `preexec_fn` that turns a forked child of the parent into one of the candidate's."""
        return lambda: _become(self)


def _become(rights: Rights) -> None:
    # The kernel is to choose the candidate, not the parent, when memory runs out.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.umask(0o022)
    for what, wanted in (
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, rights.file), (resource.RLIMIT_NPROC, rights.processes),
        (resource.RLIMIT_AS, rights.memory),
    ):  # fmt: skip
        if wanted or what == resource.RLIMIT_CORE:
            _, hard = resource.getrlimit(what)
            limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(what, (limit, limit))
    os.setgroups([])
    os.setresgid(rights.gid, rights.gid, rights.gid)
    os.setresuid(rights.uid, rights.uid, rights.uid)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def as_candidate(rights: Rights):  # type: ignore[no-untyped-def]  # a generator context manager of nothing
    """Let the kernel judge file accesses of this thread as those of the candidate.

    A link that the candidate planted then leads nowhere it could not go itself.
    """
    _libc.setfsgid(rights.gid)
    _libc.setfsuid(rights.uid)
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)


def processes(uid: int) -> list[int]:
    """The living processes (zombies are dead) of a user id."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == uid or _real_uid(entry.name) == uid:
                state = Path(entry.path, "stat").read_text("latin-1").rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state not in "ZX" else []
        except (OSError, IndexError):
            continue
    return found


def _real_uid(pid: str) -> int:
    for line in Path("/proc", pid, "status").read_text("latin-1").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return -1


def end_all(uid: int, rounds: int = 50) -> bool:
    """Kill every process of a user id; True when none is left.

    The signal to "all that this user may signal" is sent by a process of that user: the kernel delivers it under
    one lock, which no fork bomb outruns.
    """
    for attempt in range(rounds):
        left = processes(uid)
        if not left:
            return True
        for pid in left:
            with contextlib.suppress(OSError):
                _kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            _kill_as(uid)
        time.sleep(0.001 * min(attempt, 10))
    return not processes(uid)


def _kill_as(uid: int) -> None:
    pid = _fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            _kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
