"""A sandbox that only knows `cat n`: quick enough to train against in a test. What runs in it is never a shell."""

import json
import random

import pytest

from guerdon.compiler.plan.canonical import digest
from guerdon.runtime.cli.loading import load
from guerdon.runtime.contracts.sandbox import Artefacts, ExecResult

PACK = """edition 1
import "std/task" (plain, bash, submit)
dataset numbers = jsonl("numbers.jsonl") {
  key = id
  schema { id: string; value: string secret; guess: string }
  split(seed = 1) { train = 0.7; eval = 0.3 }
}
environment desk {
  image = plain; workdir = "/work"
  resources { cpu = 1; memory = 64MiB; disk = 8MiB; pids = 32 }
}
verifier right(value: string) = answer { expected = value; from = submit; compare = number }
reward reading(result: answer) {
  solved = result.passed
  term outcome 1.0 = solved
  term clumsy -0.1 = min(trajectory.malformed_calls, 4) / 4
}
task look for row in numbers {
  environment = desk
  prompt   = "n?"
  tools    = [bash, submit]
  limits   { turns = 3; tokens = 400; wall = 1min }
  verify   { result = right(row.value) }
  reward   = reading(result)
  solution { call bash("cat n"); call submit(row.value) }
  exploit "guesses" { call submit(row.guess) }
}
"""


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


@pytest.fixture(scope="module")
def room(tmp_path_factory, emulated):
    """A pack, its plan, and one folder for all runs, so that the supervised start is made once."""
    folder = tmp_path_factory.mktemp("training")
    rng = random.Random(1)
    numbers = {f"n{i}": i % 10 for i in range(100)}
    lines = [
        {"id": key, "value": str(n), "guess": str((n + 1 + rng.randrange(9)) % 10)} for key, n in numbers.items()
    ]
    pack = folder / "look"
    pack.mkdir()
    (pack / "numbers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (pack / "look.task").write_text(PACK)
    return load(str(pack), {}), folder / "runs", numbers, emulated
