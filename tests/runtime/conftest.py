"""One Podman provider and one image for all tests of the runtime, in one event loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from guerdon.runtime.contracts.sandbox import ImageRecipe, SandboxFault
from guerdon.runtime.sandbox import PodmanProvider

T = TypeVar("T")
Runner = Callable[[Coroutine[Any, Any, T]], T]
SLIM = ImageRecipe("debian", ("python3", "python3-pytest", "git"))


@pytest.fixture(scope="session")
def arun() -> Iterator[Runner[Any]]:
    """Run a coroutine to its end in the session's event loop: `arun(provider.create(spec))`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(timeout=300)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def provider(arun: Runner[Any]) -> Iterator[PodmanProvider]:
    """The session's provider, on this machine's own Podman service."""
    try:
        made = arun(PodmanProvider.start())
    except SandboxFault as fault:
        if fault.kind in ("podman-missing", "cgroup-unusable", "no-subids"):
            pytest.skip(f"no sandbox can run here: {fault}")
        raise
    yield made
    arun(made.close())


@pytest.fixture(scope="session")
def slim_image(arun: Runner[Any], provider: PodmanProvider) -> str:
    """The image with python3, pytest and git; built once on a machine (about a minute)."""
    return str(arun(provider.ensure_image(SLIM)))
