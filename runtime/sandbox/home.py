"""Where this program's own Podman lives on disk, and the locks that keep two runners apart."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from guerdon.runtime.contracts.home import home
from guerdon.runtime.contracts.sandbox import SandboxFault

MAX_SOCKET_PATH = 100
"""A unix socket's path must fit in 108 bytes; some are kept for the temporary names next to it."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one Podman service of ours; two homes share nothing."""

    root: Path

    @property
    def socket(self) -> Path:
        return self.root / "run" / "podman.sock"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def storage(self) -> Path:
        return self.root / "storage"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def log(self) -> Path:
        return self.root / "service.log"

    @property
    def pid_file(self) -> Path:
        return self.run / "service.pid"

    @property
    def lock_dir(self) -> Path:
        return self.root / "locks"

    def make(self) -> None:
        """Make the folders (0700). Raises SandboxFault `home-unusable`."""
        try:
            for path in (self.root, self.run, self.storage, self.tmp, self.config, self.lock_dir):
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = self.root.stat()
            if status.st_uid != os.geteuid():
                raise SandboxFault("home-unusable", f"{self.root} belongs to another user (uid {status.st_uid})",
                                   "set GUERDON_HOME to a folder of your own")
            # An existing folder may have been made with a wide umask; a socket in it equals root.
            self.root.chmod(0o700)
        except OSError as error:
            raise unusable(self.root, error) from error
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH:
            raise SandboxFault("home-unusable", f"the socket path {self.socket} is longer than a socket's may be",
                               "set GUERDON_HOME to a shorter path")


def unusable(root: Path, error: OSError) -> SandboxFault:
    """What an OSError below a home means: `disk-full` or `home-unusable`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SandboxFault("disk-full", f"no space left at {root}",
                            "free space, or point GUERDON_HOME at a larger disk")
    return SandboxFault("home-unusable", f"cannot use {error.filename or root}: {error.strerror or error}",
                        "set GUERDON_HOME to a folder that you can write")


def default_home() -> Home:
    """The home below guerdon's own folder."""
    return Home(home())


@contextlib.contextmanager
def locked(home: Home, name: str, timeout: float = 900.0, stop: threading.Event | None = None) -> Iterator[None]:
    """Hold one of the home's file locks (freed by the kernel if the holder dies).

    Blocks up to `timeout` seconds, or until `stop` is set; raises SandboxFault `locked` past it.
    """
    try:
        fd = os.open(home.lock_dir / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(home.root, error) from error
    try:
        end = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end or (stop is not None and stop.is_set()):
                    raise SandboxFault("locked", f"another process has held the lock {name} for {timeout:.0f} s",
                                       f"see who: fuser {home.lock_dir / name}.lock") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)
