"""One container as a Sandbox: run, shell, put, quiesce, collect, remove."""

from __future__ import annotations

import asyncio
import errno as errno_names
import os
from collections.abc import Callable, Mapping, Sequence

from guerdon.runtime.contracts.sandbox import (
    Artefacts,
    CollectLimits,
    ExecResult,
    PutFile,
    SandboxFault,
    SandboxSpec,
)
from guerdon.runtime.sandbox import files, hostside, removal
from guerdon.runtime.sandbox.engine import Engine
from guerdon.runtime.sandbox.execution import KILLED, Command, Control, execute
from guerdon.runtime.sandbox.shell import PodmanShell
from guerdon.runtime.sandbox.spec import ROOT, USER

HELPER_SECONDS = 60.0
LIMITS = CollectLimits()
# As uid 1000 without capabilities: the kernel sends it to all that this user runs, at once, but not to PID 1.
KILL_ALL = ("/bin/sh", "-c", "kill -9 -1")


class PodmanSandbox:
    """See the contract `Sandbox`. `pid` is the host's id of PID 1 (0 when the service is elsewhere)."""

    def __init__(self, engine: Engine, container: str, pid: int, spec: SandboxSpec,
                 forget: Callable[[str], None]) -> None:
        self._engine = engine
        self._id = container
        self._pid = pid
        self._spec = spec
        self._forget = forget
        self._control = Control(self._kill_all, self._kill_user, self._alive)
        self._shells: list[PodmanShell] = []
        self._removed = False
        self._python: str | None = None

    @property
    def id(self) -> str:
        return self._id

    @property
    def spec(self) -> SandboxSpec:
        return self._spec

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", wall: float = 60.0, output: int = 1024 * 1024,
        root: bool = False, env: Mapping[str, str] | None = None, cwd: str | None = None,
    ) -> ExecResult:
        """See the contract. A program that is not there ends with 127, a folder that is not there with 126."""
        if root and self._spec.role != "verify":
            raise ValueError("only a sandbox of role `verify` runs programs as root")
        command = Command(argv, ROOT if root else USER, stdin, wall, output, env or {}, cwd or self._spec.workdir)
        return await execute(self._engine, self._id, command, self._control)

    async def shell(self) -> PodmanShell:
        """See the contract."""
        shell = PodmanShell(self._engine, self._id, self._spec.workdir, self._control)
        await shell.open()
        self._shells.append(shell)
        return shell

    async def put(self, given: Sequence[PutFile], *, root: bool = False, read_only: bool = False) -> None:
        """See the contract. A folder that `read_only` passes through becomes uid 0's; the writable folder at its
        top stays open for new entries, but nothing of uid 0 in it can be renamed or deleted."""
        if root and self._spec.role != "verify":
            raise ValueError("only a sandbox of role `verify` takes files as root")
        if read_only and not root:
            raise ValueError("read-only files are written as root")
        if not given:
            return
        request = files.put_request(given, self._spec, root=root, read_only=read_only)
        done = await self._helper(request, ROOT if root else USER, 64 * 1024)
        if done.exit_code == KILLED or done.timed_out:
            raise OSError(errno_names.ENOMEM, "writing was killed: the sandbox's memory is exhausted, or "
                          "its own processes did it", given[0].path)
        _check(done, "writing files")
        code, path = files.put_answer(done.stdout)
        if code:
            raise OSError(code, os.strerror(code), path)

    async def _helper(self, request: bytes, user: str, output: int) -> ExecResult:
        """Run the inside program with the image's Python, and again where the user's own processes may have ended
        it. Raises SandboxFault `image-unfit` where there is no Python."""
        done = await self._try_helper(request, user, output)
        if done.exit_code == KILLED or done.timed_out:
            await self._kill_user()
            done = await self._try_helper(request, user, output)
        return done

    async def _try_helper(self, request: bytes, user: str, output: int) -> ExecResult:
        """Run the inside program once."""
        candidates = [self._python] if self._python else files.pythons(self._spec)
        for python in candidates:
            command = Command(files.argv(python), user, request, HELPER_SECONDS, output, drains=True)
            done = await execute(self._engine, self._id, command, self._control)
            if done.exit_code != 127:
                self._python = python
                return done
        raise SandboxFault("image-unfit", f"the image {self._spec.image[:19]} has no Python at "
                           f"{' or '.join(files.PYTHONS)}", "add the package python3 to the image's recipe")

    async def quiesce(self) -> None:
        """See the contract. Open shells are replaced on their next command."""
        await self._kill_user()

    def _shells_end(self) -> None:
        """Tell the open shells that they are about to be killed."""
        for shell in self._shells:
            shell.outlived()

    async def _kill_user(self) -> None:
        """Kill what uid 1000 runs. Raises SandboxFault when something is left."""
        self._shells_end()
        if await asyncio.to_thread(hostside.kill_inside, self._pid, self._id, keep_root=True):
            return
        await self._alive()
        await self._kill_from_inside(USER)

    async def _kill_all(self) -> None:
        """Kill all but PID 1 and its sleep. Raises SandboxFault when something is left."""
        self._shells_end()
        if await asyncio.to_thread(hostside.kill_inside, self._pid, self._id, keep_root=False):
            return
        await self._alive()
        await self._kill_from_inside(USER)
        if self._spec.role == "verify":
            await self._kill_from_inside(ROOT)

    async def _kill_from_inside(self, user: str) -> None:
        """The way where the host cannot see the processes: the killer is one of them."""
        async def nothing() -> None:
            return None

        done = await execute(self._engine, self._id, Command(KILL_ALL, user, wall=30.0),
                             Control(nothing, nothing, self._alive))
        if done.timed_out:
            raise SandboxFault("kill-failed", f"the processes of {self._id[:12]} do not die",
                               "see whether the machine is overloaded, then run the episode again")

    async def _alive(self) -> None:
        """Raise SandboxFault unless the container runs.

        Nothing inside can kill PID 1, so where SIGKILL ended it (`sandbox-oom`) it was the kernel, for memory that
        the sandbox's own processes took; all else is `sandbox-died` or `sandbox-gone`.
        """
        reply = await self._engine.request("GET", f"/containers/{self._id}/json")
        if reply.status == 404:
            raise SandboxFault("sandbox-gone", f"the sandbox {self._id[:12]} is gone",
                               "it was removed from outside; run the episode again")
        state = reply.json().get("State", {})
        # Podman calls a sandbox that is being stopped (`stopping`) or removed still `Running`.
        running = state.get("Running") and state.get("Status", "running") == "running"
        if not running and state.get("ExitCode") == KILLED:
            raise SandboxFault("sandbox-oom", f"the sandbox {self._id[:12]} was ended by what took all its memory",
                               "give the environment more memory, if its tasks need it")
        if not running:
            raise SandboxFault("sandbox-died", f"the sandbox {self._id[:12]} is not running any more",
                               "run the episode again")

    async def collect(self, globs: Sequence[str], limits: CollectLimits = LIMITS) -> Artefacts:
        """See the contract. Call `quiesce` first: what still runs as uid 1000 could meddle with the reading."""
        user = ROOT if self._spec.role == "verify" else USER
        request = files.collect_request(globs, limits)
        done = await self._helper(request, user, files.output_bound(limits))
        if done.exit_code == KILLED or done.timed_out:
            return files.broken("reading was killed: what the sandbox holds left no memory or time for it")
        if done.truncated:
            return files.broken("the names of the files are too long")
        _check(done, "collecting files")
        return files.collect_answer(done.stdout)

    async def remove(self) -> None:
        """See the contract."""
        if self._removed:
            return
        await removal.remove(self._engine, self._id, self._pid)
        self._removed = True
        self._forget(self._id)
        for shell in self._shells:
            await shell.close()


def _check(done: ExecResult, what: str) -> None:
    """Raise SandboxFault unless the inside program ended well."""
    if done.exit_code != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise SandboxFault("exec-lost", f"{what} failed: {last[0][:300]}", "run the episode again")
