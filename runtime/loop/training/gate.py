"""Many sandboxes alive, few at work: in lockstep all episodes call their tools at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from guerdon.runtime.contracts.sandbox import (
    Artefacts,
    CollectLimits,
    ExecResult,
    ImageRecipe,
    PutFile,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    Shell,
)

LIMITS = CollectLimits()


@dataclass(frozen=True, slots=True)
class GatedShell:
    """A shell whose commands wait for their turn."""

    inner: Shell
    gate: asyncio.Semaphore

    async def run(self, command: str, *, wall: float, output: int = 64 * 1024) -> ExecResult:
        async with self.gate:
            return await self.inner.run(command, wall=wall, output=output)

    async def close(self) -> None:
        await self.inner.close()


@dataclass(frozen=True, slots=True)
class GatedSandbox:
    """A sandbox whose work waits for its turn; what is being removed does not."""

    inner: Sandbox
    gate: asyncio.Semaphore

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def spec(self) -> SandboxSpec:
        return self.inner.spec

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", wall: float = 60.0, output: int = 1024 * 1024,
        root: bool = False, env: Mapping[str, str] | None = None, cwd: str | None = None,
    ) -> ExecResult:
        async with self.gate:
            return await self.inner.run(argv, stdin=stdin, wall=wall, output=output, root=root, env=env, cwd=cwd)

    async def shell(self) -> Shell:
        async with self.gate:
            return GatedShell(await self.inner.shell(), self.gate)

    async def put(self, files: Sequence[PutFile], *, root: bool = False, read_only: bool = False) -> None:
        async with self.gate:
            await self.inner.put(files, root=root, read_only=read_only)

    async def quiesce(self) -> None:
        async with self.gate:
            await self.inner.quiesce()

    async def collect(self, globs: Sequence[str], limits: CollectLimits = LIMITS) -> Artefacts:
        async with self.gate:
            return await self.inner.collect(globs, limits)

    async def remove(self) -> None:
        await self.inner.remove()


class GatedProvider:
    """Sandboxes of another provider, of which at most `width` work at once (creating one is work)."""

    def __init__(self, inner: SandboxProvider, width: int) -> None:
        self._inner = inner
        self._gate = asyncio.Semaphore(width)

    async def ensure_image(self, recipe: ImageRecipe) -> str:
        return await self._inner.ensure_image(recipe)

    async def create(self, spec: SandboxSpec, labels: Mapping[str, str] | None = None) -> Sandbox:
        async with self._gate:
            return GatedSandbox(await self._inner.create(spec, labels), self._gate)

    async def close(self) -> None:
        await self._inner.close()
