"""The end of a run: its sandboxes go, and what hinders that must not cost the run its result."""

from __future__ import annotations

from collections.abc import Callable

from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxProvider


async def close(provider: SandboxProvider | None, say: Callable[[str], None]) -> None:
    """Remove what a provider still holds; where that fails, say so: the next start removes the rest."""
    if provider is None:
        return
    try:
        await provider.close()
    except SandboxFault as fault:
        say(f"not every sandbox could be removed, the next start does it: {fault}")
