"""The processes of all ranks: started together, watched, ended together; no orphan is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path

from guerdon.runtime.contracts.learner import LearnerFault

_TAIL = 6
_LONGEST = 900
LOOPBACK = "127.0.0.1"


@dataclass
class Processes:
    """One process a rank, each the leader of its own process group, its output in a file of its own."""

    count: int
    threads: int
    logs: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="guerdon-ranks-")))
    members: list[Process] = field(default_factory=list)
    lifeline: int = -1
    keep_logs: bool = False

    async def start(self, control: socket.socket) -> None:
        """Start all ranks; the first one inherits `control`. Raises LearnerFault."""
        reading, self.lifeline = os.pipe()
        try:
            port = free_port()
            for rank in range(self.count):
                fds = [reading, *([control.fileno()] if rank == 0 else [])]
                self.members.append(await self._start(rank, port, fds))
        except OSError as error:
            raise LearnerFault(f"a rank could not be started: {error}; free memory or processes and retry") from error
        finally:
            os.close(reading)

    async def _start(self, rank: int, port: int, fds: list[int]) -> Process:
        arguments = ["--lifeline", str(fds[0]), *(["--control", str(fds[1])] if len(fds) > 1 else [])]
        with self.log(rank).open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "guerdon.runtime.learner.rank", *arguments,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment(rank, port), pass_fds=fds, process_group=0,
            )  # fmt: skip

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        found = {
            **os.environ,
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.count),
            "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(self.threads),
            # What Megatron-core asks for where sequence parallelism overlaps kernels and transfers.
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        }  # fmt: skip
        if sys.platform == "linux":
            found.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one machine; nothing listens to the outside
        return found

    def log(self, rank: int) -> Path:
        """The file that a rank's output goes to."""
        return self.logs / f"rank-{rank}.log"

    async def first_death(self) -> int:
        """Wait for any rank to end; of several, one that a signal ended."""
        waits = [asyncio.ensure_future(member.wait()) for member in self.members]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        ended = [rank for rank, member in enumerate(self.members) if member.returncode is not None]
        return min(ended, key=lambda rank: ((self.members[rank].returncode or 0) >= 0, rank))

    def epitaph(self, rank: int) -> str:
        """Why a rank ended, with its last log lines, in one line."""
        self.keep_logs = True
        code = self.members[rank].returncode or 0
        how = f"exited with {code}"
        if code < 0:
            name = signal.Signals(-code).name
            how = f"was ended by {name}{' (memory may have run out)' if name == 'SIGKILL' else ''}"
        words = " | ".join(tail(self.log(rank))) or "nothing"
        return f"rank {rank} of {self.count} {how}; its log {self.log(rank)} ends with: {words[-_LONGEST:]}"

    async def kill(self) -> None:
        """End every rank, with whatever it started, and wait until they are gone; safe to call twice."""
        for member in self.members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(member.pid, signal.SIGKILL)
        for member in self.members:
            await member.wait()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    async def wait(self, seconds: float) -> None:
        """Give the ranks time to end by themselves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for member in self.members:
                    await member.wait()


def free_port() -> int:
    """A TCP port of the loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def tail(log: Path) -> list[str]:
    """The last lines of a log that say something."""
    try:
        text = log.read_bytes()[-8192:].decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-_TAIL:]
