"""A sandbox that only knows `cat n`: quick enough to train against in a test. What runs in it is never a shell."""

import pytest

from guerdon.compiler.plan.canonical import digest
from guerdon.runtime.contracts.sandbox import Artefacts, ExecResult


class Shell:
    def __init__(self, box):
        self.box = box

    async def run(self, command, *, wall, output=65536):
        if command != "cat n":
            return ExecResult(127, b"", b"?\n", 0.0)
        return ExecResult(0, str(self.box.number).encode(), b"", 0.0)

    async def close(self):
        pass


class Box:
    def __init__(self, spec, number):
        self.id, self.spec, self.number = "emulated", spec, number

    async def shell(self):
        return Shell(self)

    async def put(self, files, *, root=False, read_only=False):
        pass

    async def quiesce(self):
        pass

    async def collect(self, globs, limits=None):
        return Artefacts((), digest(b""))

    async def remove(self):
        pass


class Emulated:
    """A provider of such sandboxes: `numbers` are what the rows' files hold, and `off_by` is added to what is read."""

    def __init__(self, numbers, off_by=0):
        self.numbers, self.off_by = numbers, off_by
        self.made = 0

    async def ensure_image(self, recipe):
        return "sha256:" + "0" * 64

    async def create(self, spec, labels=None):
        self.made += 1
        return Box(spec, (self.numbers[labels["guerdon.row"]] + self.off_by) % 10)

    async def close(self):
        pass


@pytest.fixture(scope="module")
def emulated():
    """The class of the provider: `emulated(numbers, off_by)`."""
    return Emulated
