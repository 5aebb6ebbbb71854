"""Where sandboxes come from: one Podman service, its images, and what this process made."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.sandbox import ImageRecipe, SandboxFault, SandboxSpec
from guerdon.runtime.sandbox import config, host, hostside, images, removal, rest, service, spec, sweep
from guerdon.runtime.sandbox.engine import Engine, refused
from guerdon.runtime.sandbox.home import Home, default_home
from guerdon.runtime.sandbox.sandbox import PodmanSandbox

CREATIONS = 4
"""Creations side by side: more only queue in the service and make each of them late."""
START_SECONDS = 120.0


class PodmanProvider:
    """See the contract `SandboxProvider`. Make one with `start`; use it from one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cgroup = host.cgroup_kind()
        self._maker = secrets.token_hex(8)
        self._held: dict[str, PodmanSandbox] = {}
        self._creations = asyncio.Semaphore(CREATIONS)
        self._image_turn = asyncio.Lock()

    @classmethod
    async def start(cls, home: Home | None = None, *, stores: tuple[Path, ...] = ()) -> PodmanProvider:
        """Ensure the service, remove what dead runners left. Raises SandboxFault."""
        home = home or default_home()
        report = await asyncio.to_thread(service.ensure_running, home, stores=stores)
        notes = [f"Podman's service was {report.state}" if report.state != "given"
                 else f"using the Podman service at {report.url}", *report.notes]
        engine = Engine(home, report.url, notes, stores)
        removed = await sweep.sweep(engine)
        if removed:
            notes.append(f"removed {len(removed)} sandboxes that runners had left behind")
        return cls(engine)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found and mended so far, in plain words."""
        return tuple(self._engine.notes)

    @property
    def engine(self) -> Engine:
        """The connection to the service."""
        return self._engine

    async def ensure_image(self, recipe: ImageRecipe) -> str:
        """See the contract. Building takes about a minute the first time. Raises SandboxFault."""
        async with self._image_turn:
            return await images.ensure(self._engine, recipe)

    async def create(self, given: SandboxSpec, labels: Mapping[str, str] | None = None) -> PodmanSandbox:
        """See the contract."""
        profile = config.seccomp_path(self._engine.home)
        marks = {**(labels or {}), **sweep.own_labels(), sweep.MAKER: self._maker}
        body = spec.container(given, marks, profile if profile.exists() else None, self._cgroup)
        async with self._creations:
            made = await self._made(body)
            if made.status != 201:
                raise refused(made, "a sandbox could not be made", given.image)
            container = str(made.json()["Id"])
            try:
                return await self._begin(container, given)
            except BaseException:
                with contextlib.suppress(SandboxFault):
                    await asyncio.shield(removal.remove(self._engine, container))
                raise

    async def _made(self, body: Mapping[str, Any]) -> rest.Reply:
        """Ask for a container. The service makes it whether or not the caller still waits: who gives up learns its
        name first and removes it, since what is not yet made is in no list that could be swept."""
        asked = asyncio.create_task(self._engine.request("POST", "/containers/create", body, START_SECONDS))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxFault):
                made = await asked
                if made.status == 201:
                    await removal.remove(self._engine, str(made.json()["Id"]))
            raise

    async def _begin(self, container: str, given: SandboxSpec) -> PodmanSandbox:
        """Start a created container and make its folders the user's."""
        begun = await self._engine.request("POST", f"/containers/{container}/start", None, START_SECONDS, repeat=True)
        if begun.status not in (204, 304):
            raise refused(begun, "a sandbox could not be started", given.image)
        seen = await self._engine.request("GET", f"/containers/{container}/json")
        state = seen.json().get("State", {})
        if seen.status != 200 or not state.get("Running"):
            raise SandboxFault("create-failed", "a sandbox ended at once: see that the image has /bin/sh and sleep",
                               "use an image with a shell and coreutils")
        pid = int(state.get("Pid") or 0)
        await asyncio.to_thread(hostside.await_init, pid, container)
        if not await asyncio.to_thread(hostside.own_folders, pid, container, spec.owned(given)):
            await self._own_from_inside(container, spec.owned(given))
        sandbox = PodmanSandbox(self._engine, container, pid, given, self._forget)
        self._held[container] = sandbox
        return sandbox

    async def _own_from_inside(self, container: str, paths: tuple[str, ...]) -> None:
        """Give folders to uid 1000 by a trusted exec with all rights; nothing of the agent's is there yet."""
        stream = await self._engine.open_exec(container, {
            "AttachStdout": True, "AttachStderr": True, "User": spec.ROOT, "Privileged": True, "WorkingDir": "/",
            "Cmd": ["/bin/chown", "-h", spec.USER, *paths],
        })
        try:
            said = b""
            while (frame := await stream.frame()) is not None:
                said = (said + frame[1])[:500]
        finally:
            stream.close()
        if await self._engine.exit_code(stream.id) != 0:
            raise SandboxFault("create-failed", f"a sandbox's folders could not be given to its user: "
                               f"{said.decode(errors='replace').strip()}", "see that the image has /bin/chown")

    def _forget(self, container: str) -> None:
        self._held.pop(container, None)

    async def close(self) -> None:
        """See the contract. The service stays for other runners and ends by itself when idle."""
        results = await asyncio.gather(*(one.remove() for one in list(self._held.values())), return_exceptions=True)
        # What a lost connection made without our learning its name carries our label.
        for one in await sweep.listed(self._engine):
            if one.labels.get(sweep.MAKER) == self._maker:
                await removal.remove(self._engine, one.id)
        for result in results:
            if isinstance(result, BaseException):
                raise result
