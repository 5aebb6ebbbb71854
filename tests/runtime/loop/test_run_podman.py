"""Whole runs in real sandboxes: a repository task, its lock, its calibration, and a killed runner."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from guerdon.runtime.calibrate.calibrate import calibrate
from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.contracts.trajectory import Outcome
from guerdon.runtime.loop.config import RunConfig
from guerdon.runtime.loop.lock import learn
from guerdon.runtime.loop.run import run
from guerdon.runtime.policy.table import make
from guerdon.runtime.schedule.retry import HostFault
from guerdon.runtime.store.journal import FileJournal

pytestmark = pytest.mark.podman

ADD, ZERO = "test_calc.py::test_add", "test_calc.py::test_zero"

def test_lock_run_and_calibration(arun, calc, provider, slim_image, tmp_path):
    found = arun(learn(calc("locked"), provider))
    assert found["problems"] == []
    tests = found["tests"]["mend"]["r0"]["tests"]
    assert found["images"] == {"slim": slim_image}
    assert [t.rpartition("/")[2] for t in tests["expect"]] == [ADD, ZERO]
    assert [t.rpartition("/")[2] for t in tests["failing_at_start"]] == [ADD]

    result = arun(calibrate(calc(tests["expect"], tests["failing_at_start"]), provider, tmp_path / "runs"))
    assert [str(m) for m in result.missed] == []
    assert set(result.outcomes) == {
        ("mend", p)
        for p in ("oracle", "idle", "refusal", "quit", "exploit:touches the kept file", "exit0", "equals_all")
    }
    (folder,) = (tmp_path / "runs").glob("calc-oracle-*")
    with FileJournal(folder) as journal:
        (oracle,) = journal.scan()
    assert oracle.reward.total == "1" and oracle.verdicts["tests"].signals["gain"] == 1
    (folder,) = (tmp_path / "runs").glob("calc-exploit-*")
    with FileJournal(folder) as journal:
        (exploit,) = journal.scan()
    # The tests pass; the broken rule alone makes it unsolved: 0.9 * 0 + 0.1 * 1
    assert (exploit.outcome, exploit.reward.total) == (Outcome.FAIL, "1/10")
    assert exploit.trajectory.violations == ("kept",)


def test_lock_says_what_a_wrong_solution_costs(arun, calc, provider):
    from dataclasses import replace

    plan = calc("locked")
    (row,) = plan.instances()
    idle = replace(row, row="idle", solution=row.solution[1:])
    none = replace(row, row="none", solution=())
    found = arun(learn(replace(plan, instances=lambda: iter([idle, none])), provider))
    assert found["tests"] == {}
    assert any("mend/idle: with the solution, 1 test(s) of tests fail" in p for p in found["problems"])
    assert any("mend/none has no solution" in p for p in found["problems"])


def test_a_lost_sandbox_is_tried_again_in_a_new_one(arun, calc, provider, tmp_path):
    class Flaky:
        """The real provider, whose first sandboxes vanish under the agent's feet."""

        def __init__(self, losses):
            self.losses = losses

        async def ensure_image(self, recipe):
            return await provider.ensure_image(recipe)

        async def create(self, spec, labels=None):
            sandbox = await provider.create(spec, labels)
            if self.losses:
                self.losses -= 1
                await sandbox.remove()
            return sandbox

        async def close(self):
            pass

    summary = arun(run(calc(), make("oracle"), RunConfig(), tmp_path / "a", Flaky(2)))
    assert (summary.total.passed, summary.total.invalid) == (1, 0)
    summary = arun(run(calc(), make("oracle"), RunConfig(), tmp_path / "b", Flaky(3)))
    assert (summary.total.passed, summary.total.invalid) == (0, 1)
    with FileJournal(tmp_path / "b") as journal:
        (lost,) = journal.scan()
    assert lost.outcome is Outcome.INVALID and lost.reward is None and lost.reason.startswith("infrastructure: ")
    summary = arun(run(calc(), make("oracle"), RunConfig(), tmp_path / "b", provider))
    assert (summary.total.passed, summary.total.invalid, summary.ran) == (1, 0, 1)
    with pytest.raises(HostFault, match="2 episodes in a row"):
        arun(run(calc(rows=9), make("oracle"), RunConfig(concurrency=1, give_up_after=2), tmp_path / "c", Flaky(99)))
    with FileJournal(tmp_path / "c") as journal:
        assert len(list(journal.scan())) == 2


def test_a_fault_of_the_host_stops_the_run_with_nothing_sealed(arun, provider, calc, tmp_path):
    class NoImage:
        async def ensure_image(self, recipe):
            raise SandboxFault("image-gone", "the image is not in the storage", "run `guerdon doctor`")

        async def create(self, spec, labels=None):
            raise AssertionError("no sandbox without an image")

        async def close(self):
            pass

    with pytest.raises(HostFault, match="not in the storage.*guerdon doctor"):
        arun(run(calc(rows=20), make("oracle"), RunConfig(), tmp_path / "a", NoImage()))
    assert (tmp_path / "a" / "trajectories.jsonl").read_bytes() == b""


RUNNER = """
import asyncio, pickle, sys
from pathlib import Path
from dataclasses import replace
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.loop.config import RunConfig
from guerdon.runtime.loop.run import run
from guerdon.runtime.policy.table import make
from guerdon.runtime.sandbox import PodmanProvider
from guerdon.runtime.schedule.stop import Interrupted, stop_on_signals
from guerdon.runtime.store.assets import AssetStore

plan, digest, rows, assets, out = pickle.load(open(sys.argv[1], "rb"))
loaded = LoadedPlan(plan, digest, AssetStore(assets), lambda: iter(rows))

class Tells:
    def begin(self, title, total, sealed): pass
    def note(self, text): pass
    def episode(self, sealed): print("sealed", flush=True)

async def main():
    with stop_on_signals(lambda text: None) as stop:
        provider = await PodmanProvider.start()
        try:
            await run(loaded, make("oracle"), RunConfig(concurrency=2), out, provider, watcher=Tells(), stop=stop)
        finally:
            await provider.close()

try:
    asyncio.run(main())
except Interrupted:
    sys.exit(130)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_runner_that_is_killed_or_stopped_goes_on_where_it_was(arun, calc, provider, tmp_path, how):
    import pickle

    plan, out = calc(rows=5), tmp_path / "run"
    job = tmp_path / "job.pickle"
    job.write_bytes(pickle.dumps((plan.plan, plan.digest, list(plan.instances()), plan.assets.root, out)))
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(job)], stdout=subprocess.PIPE, text=True)
    told = [runner.stdout.readline() for _ in range(2)]
    time.sleep(0.2)
    os.kill(runner.pid, how)
    if how == signal.SIGINT:
        time.sleep(0.05)
        os.kill(runner.pid, how)
    told += runner.stdout.readlines()
    assert runner.wait(60) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    with FileJournal(out) as journal:
        kept = list(journal.scan())
    assert told.count("sealed\n") <= len(kept) < 5
    assert all(s.outcome is Outcome.PASS for s in kept)
    summary = arun(run(plan, make("oracle"), RunConfig(concurrency=2), out, provider))
    assert summary.ran == 5 - len(kept) and (summary.total.passed, summary.total.invalid) == (5, 0)
    with FileJournal(out) as journal:
        again = list(journal.scan())
    assert again[: len(kept)] == kept and len({s.trajectory.episode.row for s in again}) == 5
    assert json.loads((out / "summary.json").read_text())["complete"]


def test_sandboxes_of_a_run_are_removed(arun, calc, provider, tmp_path):
    made = []

    class Counts:
        async def ensure_image(self, recipe):
            return await provider.ensure_image(recipe)

        async def create(self, spec, labels=None):
            made.append(await provider.create(spec, labels))
            return made[-1]

        async def close(self):
            pass

    arun(run(calc(), make("oracle"), RunConfig(samples=2), tmp_path / "a", Counts()))
    assert sorted(s.spec.role for s in made) == ["agent"] * 2 + ["verify"] * 2

    async def gone(sandbox):
        with pytest.raises(SandboxFault):
            await sandbox.run(["true"])

    for sandbox in made:
        arun(gone(sandbox))
