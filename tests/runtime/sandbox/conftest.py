"""Sandboxes for the tests of this room."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from guerdon.runtime.contracts.sandbox import Resources, Sandbox, SandboxSpec

MIB = 1024 * 1024
SMALL = Resources(cpu_milli=1000, memory=96 * MIB, disk=8 * MIB, pids=40)


@pytest.fixture
def opened(arun: Any, provider: Any, slim_image: str) -> Iterator[Callable[..., Sandbox]]:
    """Make sandboxes that are removed after the test: `opened(role="verify", disk=…)`."""
    with contextlib.ExitStack() as stack:
        def make(**changes: Any) -> Sandbox:
            fields = {"image": slim_image, "resources": SMALL, **changes}
            sandbox: Sandbox = arun(provider.create(SandboxSpec(**fields)))
            stack.callback(lambda: arun(sandbox.remove()))
            return sandbox

        yield make


@pytest.fixture
def box(opened: Callable[..., Sandbox]) -> Sandbox:
    """One small agent's sandbox."""
    return opened()


@pytest.fixture
def sh(arun: Any, box: Sandbox) -> Callable[..., Any]:
    """Run a shell script in `box`."""
    return lambda script, **options: arun(box.run(["sh", "-c", script], **options))
