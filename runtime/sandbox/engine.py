"""The connection to one Podman service: blocking podman-py calls in threads, raw requests on asyncio, recovery."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import podman
import podman.errors
import requests

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.sandbox import rest, service
from guerdon.runtime.sandbox.home import Home

T = TypeVar("T")
CLIENT_TIMEOUT = 900.0
"""Seconds for one podman-py call: loading a large image is one."""
SCANT = 1024 * 1024
LIST_SECONDS = 30.0
"""Seconds for one that only asks: it stands between a run and its end."""
REPEATABLE = ("GET", "DELETE", "HEAD")


@dataclass(slots=True)
class Engine:
    """One service; `notes` gathers what befell it, in plain words."""

    home: Home
    url: str
    notes: list[str]
    stores: tuple[Path, ...] = ()
    _guard: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def path(self) -> str:
        """The socket's path."""
        return self.url.removeprefix("unix://")

    def incarnation(self) -> tuple[int, int]:
        """Which life of the service this is: a restarted one has another socket file."""
        try:
            found = Path(self.path).stat()
        except OSError:
            return (0, 0)
        return (found.st_ino, found.st_ctime_ns)

    async def recover(self) -> None:
        """Bring the service back after a lost connection; containers outlive it. Raises SandboxFault."""
        async with self._guard:
            report = await asyncio.to_thread(service.ensure_running, self.home, stores=self.stores)
            if report.state not in ("found running", "given"):
                self.notes.append(f"Podman's service was {report.state}")

    async def request(self, method: str, target: str, body: Mapping[str, Any] | None = None,
                      timeout: float = 60.0, repeat: bool | None = None) -> rest.Reply:
        """One request; after a lost connection the service is brought back, and the request is repeated when
        that can do no harm. Raises SandboxFault `service-lost`; `service-down` where it does not come back."""
        before = self.incarnation()
        try:
            return await rest.request(self.path, method, target, body, timeout)
        except rest.ConnectionLost as error:
            await self.recover()
            if not (method in REPEATABLE if repeat is None else repeat) and before != (0, 0):
                raise down(error) from error
        try:
            return await rest.request(self.path, method, target, body, timeout)
        except rest.ConnectionLost as error:
            raise down(error) from error

    async def open_exec(self, container: str, options: Mapping[str, Any], timeout: float = 60.0) -> rest.ExecStream:
        """Start a command. An exec that never began may be tried again. Raises SandboxFault."""
        try:
            return await rest.open_exec(self.path, container, options, timeout)
        except rest.ConnectionLost:
            await self.recover()
        try:
            return await rest.open_exec(self.path, container, options, timeout)
        except rest.ConnectionLost as error:
            raise down(error) from error

    async def exit_code(self, exec_id: str, patience: float = 5.0, timeout: float = 60.0) -> int | None:
        """How a command ended; None while it runs on. Raises SandboxFault."""
        try:
            return await rest.exit_code(self.path, exec_id, patience, timeout)
        except rest.ConnectionLost as error:
            await self.recover()
            raise down(error) from error

    async def blocking(self, call: Callable[[podman.PodmanClient], T], timeout: float = CLIENT_TIMEOUT) -> T:
        """Run `call` with a podman-py client in a thread, which nothing can interrupt: `timeout` seconds bound each
        answer. Raises SandboxFault for a lost or silent service."""
        try:
            return await self._in_thread(call, timeout)
        except requests.exceptions.ConnectionError:
            await self.recover()
        try:
            return await self._in_thread(call, timeout)
        except requests.exceptions.ConnectionError as error:
            raise down(error) from error

    async def _in_thread(self, call: Callable[[podman.PodmanClient], T], timeout: float) -> T:
        try:
            return await asyncio.to_thread(self._with_client, call, timeout)
        except podman.errors.APIError as error:
            raise self.failed(str(error.explanation or error)) from error
        except requests.exceptions.ReadTimeout as error:
            raise SandboxFault("service-slow", f"podman's service gave no answer in {timeout:.0f} s",
                               "see whether the machine is overloaded; `guerdon service stop` ends a stuck one"
                               ) from error

    def failed(self, said: str) -> SandboxFault:
        """What it means that the service broke over a plain question: on a full disk its answers are a crash's."""
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.home.root).free < SCANT:
                return SandboxFault("disk-full", f"no space left at {self.home.root}",
                                    "free space, or point GUERDON_HOME at a larger disk")
        return SandboxFault("service-failed", f"podman's service failed: {said}",
                            "`guerdon doctor` looks at the service")

    def _with_client(self, call: Callable[[podman.PodmanClient], T], timeout: float = CLIENT_TIMEOUT) -> T:
        """A client for one call: podman-py's sessions are not made for many threads."""
        with podman.PodmanClient(base_url=self.url, timeout=timeout) as client:
            return call(client)


def down(error: Exception) -> SandboxFault:
    """The fault of a lost service."""
    return SandboxFault("service-lost", f"Podman's service went away: {error}", rest.SERVICE_REMEDY)


def refused(reply: rest.Reply, what: str, image: str = "") -> SandboxFault:
    """What a refusal of the service means."""
    text = reply.message
    if "no space left" in text or "disk quota" in text:
        return SandboxFault("disk-full", f"{what}: no space left in the storage",
                            "free space (guerdon sandbox gc), or point GUERDON_HOME at a larger disk")
    if reply.status == 404 or "no such image" in text or "image not known" in text:
        return SandboxFault("image-gone", f"{what}: the image {image[:19]} is not in the storage",
                            "run it again: the image is made anew from its recipe")
    if "subuid" in text or "subgid" in text or "user namespace" in text.lower():
        return SandboxFault("create-failed", f"{what}: {text}",
                            "give /etc/subuid and /etc/subgid a larger range for `containers`")
    return SandboxFault("create-failed", f"{what}: {text}", "`guerdon doctor` looks at the service")
