"""Runs under faults: what is stopped, killed or taken away costs no sealed episode and leaves nothing behind."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from guerdon.runtime.contracts.sandbox import SandboxFault, SandboxSpec
from guerdon.runtime.contracts.store import StoreFault
from guerdon.runtime.contracts.trajectory import Message, Outcome, ToolCall, Turn
from guerdon.runtime.loop.config import RunConfig
from guerdon.runtime.loop.run import run
from guerdon.runtime.policy.demo import Playback
from guerdon.runtime.policy.scripted import Scripted
from guerdon.runtime.policy.table import make
from guerdon.runtime.sandbox import PodmanProvider, sweep
from guerdon.runtime.sandbox.home import Home, default_home
from guerdon.runtime.sandbox.service import service_pid, stop_service
from guerdon.runtime.store.journal import FileJournal

pytestmark = pytest.mark.podman
EXAMPLES = Path(__file__).parents[3] / "examples"
LIMIT = 120


def guerdon(*words, **env):
    """The command to its end: exit status and all that it said."""
    done = subprocess.run([sys.executable, "-m", "guerdon.runtime.cli.main", *words], env={**os.environ, **env},
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout


def lines(runs):
    return [line for path in runs.glob("*/trajectories.jsonl") for line in path.read_bytes().splitlines()]


def until(true):
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def owned(arun, provider, pid):
    """Sandboxes that the process `pid` made."""
    found = arun(sweep.listed(provider.engine))
    return [one for one in found if one.labels.get(sweep.OWNER, "").startswith(f"{pid}:")]


def monitored(ids):
    """Which of these containers a process on the host (conmon, mostly) still names."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            commands.append(path.read_bytes())
    return [one for one in ids if any(one.encode() in command for command in commands)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_or_killed_command_goes_on_and_leaves_nothing(arun, provider, slim_image, tmp_path, how):
    runs = tmp_path / "runs"
    words = ["run", str(EXAMPLES / "word_count"), "policy=oracle", "samples=4", f"store.runs={runs}"]
    runner = subprocess.Popen([sys.executable, "-m", "guerdon.runtime.cli.main", *words], start_new_session=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until(lambda: len(lines(runs)) >= 2 and owned(arun, provider, runner.pid))
    os.killpg(runner.pid, how)
    said = runner.stdout.read()
    assert runner.wait(LIMIT) == (130 if how == signal.SIGINT else -how)
    kept, left = lines(runs), owned(arun, provider, runner.pid)
    if how == signal.SIGINT:
        assert "go on with: guerdon run" in said and left == []
    else:
        assert left
        next(runs.glob("*/trajectories.jsonl")).open("ab").write(b'{"sealed":{"format":')
    status, again = guerdon(*words)
    assert status == 0 and f"12 episode(s), {len(kept)} of them sealed before" in again
    if how == signal.SIGKILL:
        assert "sandboxes that runners had left behind" in again and "was torn" in again
    assert lines(runs)[: len(kept)] == kept and len(lines(runs)) == 12
    assert owned(arun, provider, runner.pid) == []
    until(lambda: not monitored([one.id for one in left]))


def test_a_killed_service_costs_a_retry_and_no_episode(arun, calc, provider, slim_image, tmp_path):
    home = Home(Path(tempfile.mkdtemp(prefix="gd-")))
    lone = arun(PodmanProvider.start(home, stores=(default_home().storage,)))
    told = []

    class Kills:
        """A watcher under whose eyes the service is killed twice."""

        def begin(self, title, total, sealed):
            pass

        def note(self, text):
            told.append(text)

        def episode(self, sealed):
            told.append(sealed)
            if len(lines(tmp_path)) in (1, 3):
                os.kill(service_pid(home), signal.SIGKILL)

    try:
        work = run(calc(rows=5), make("oracle"), RunConfig(concurrency=2), tmp_path / "a", lone, watcher=Kills())
        summary = arun(work)
        assert (summary.total.passed, summary.total.failed, summary.total.invalid) == (5, 0, 0)
        assert sum("restarted after it had died" in note for note in lone.notes) >= 1
        assert arun(sweep.listed(lone.engine)) == []
    finally:
        arun(lone.close())
        stop_service(home)
        shutil.rmtree(home.root, ignore_errors=True)


def test_giving_up_a_sandbox_that_is_being_made_leaves_none(arun, provider, slim_image):
    async def give_up(after):
        making = asyncio.create_task(provider.create(SandboxSpec(slim_image), {"guerdon.task": "given up"}))
        await asyncio.sleep(after)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)

    for tenth in range(12):
        arun(give_up(tenth / 2000))
    time.sleep(0.5)
    found = arun(sweep.listed(provider.engine))
    assert [one for one in found if one.labels.get("guerdon.task") == "given up"] == []


def test_closing_one_provider_harms_no_other(arun, provider, slim_image):
    other = arun(PodmanProvider.start())
    mine, its = arun(provider.create(SandboxSpec(slim_image))), arun(other.create(SandboxSpec(slim_image)))
    arun(other.close())
    assert arun(mine.run(["echo", "alive"])).stdout == b"alive\n"
    with pytest.raises(SandboxFault):
        arun(its.run(["true"]))
    arun(mine.remove())


EAT = "x=[]\nwhile 1: x.append(bytearray(1<<20))"
ATTACKS = {
    "kills all": "kill -9 -1",
    "goes on killing": "(trap '' TERM; while :; do kill -9 -1; done) & true",
    "stops all": "kill -STOP -1",
    "kills the shell": "kill -9 $$",
    "leaves the shell": "exit 0",
    "memory": f"echo 0 > /proc/self/oom_score_adj; python3 -c '{EAT}'",
    "fork bomb": ":(){ :|:& };:",
    "fills the disk": "cat /dev/zero > /workspace/a; cat /dev/zero > /tmp/a",
    "deletes all": "rm -rf /workspace /tmp/* /workspace/.* 2>/dev/null; chmod 000 /workspace",
    "daemons": "for i in 1 2 3; do (setsid nohup sh -c 'trap \"\" TERM; sleep 999' >/dev/null 2>&1 &); done",
    "floods": "head -c 30000000 /dev/zero",
    "hangs": "trap '' TERM INT; while :; do sleep 1; done",
}


def call(tool, **arguments):
    return Turn(Message("assistant", "", (ToolCall("c", tool, json.dumps(arguments)),)))


def small(plan, wall_ms=4000):
    """The plan with little memory and time, so that attacks come to their end."""
    (task,), (environment,) = plan.plan.tasks.values(), plan.plan.environments.values()
    task = replace(task, limits=replace(task.limits, wall_ms=wall_ms))
    environment = replace(environment, memory=64 << 20, disk=8 << 20, pids=24)
    return replace(plan, plan=replace(plan.plan, tasks={"mend": task}, environments={"repo": environment}))


def test_an_agent_that_destroys_its_sandbox_fails(arun, calc, provider, tmp_path):
    plan = small(calc())
    (row,) = plan.instances()
    rows = [replace(row, row=name) for name in ATTACKS]
    scripts = {f"mend/{name}": (call("bash", command=text), call("submit")) for name, text in ATTACKS.items()}
    plan = replace(plan, instances=lambda: iter(rows))
    arun(run(plan, Scripted(None, scripts), RunConfig(concurrency=3), tmp_path / "a", provider))
    with FileJournal(tmp_path / "a") as journal:
        sealed = {s.trajectory.episode.row: (s.outcome, s.reason) for s in journal.latest()}
    assert set(sealed) == set(ATTACKS)
    assert {name: why for name, (outcome, why) in sealed.items() if outcome is not Outcome.FAIL} == {}


class Doomed:
    """The real provider, whose sandboxes end under the agent as by the kernel: those of one policy, or all."""

    def __init__(self, provider):
        self.provider, self.made = provider, []

    async def ensure_image(self, recipe):
        return await self.provider.ensure_image(recipe)

    async def create(self, spec, labels=None):
        self.made.append(await self.provider.create(spec, labels))
        return self.made[-1]

    async def close(self):
        pass


class Kills:
    """An agent that submits from a sandbox whose PID 1 it had killed."""

    name = "scripted"

    def __init__(self, doomed):
        self.doomed = doomed

    def variants(self, occasion):
        return (self.name,)

    def start(self, occasion, variant, seed):
        def turns():
            yield call("put", path="/workspace/src/calc.py", content="def add(a, b):\n    return a + b\n")
            os.kill(self.doomed.made[-1]._pid, signal.SIGKILL)
            yield call("submit")

        return Playback(turns())


def test_who_lost_a_sandbox_is_settled_by_a_control(arun, calc, provider, tmp_path, monkeypatch):
    doomed = Doomed(provider)
    summary = arun(run(calc(), Kills(doomed), RunConfig(), tmp_path / "a", doomed))
    assert (summary.total.passed, summary.total.failed, summary.total.invalid) == (0, 1, 0)
    with FileJournal(tmp_path / "a") as journal:
        (sealed,) = journal.scan()
    assert len(doomed.made) == 4  # three tries, then the solution
    assert "lost under the agent" in sealed.reason and sealed.reward.total == "0"
    # What was destroyed cannot show that the kept files are unchanged, and nothing was handed in.
    assert sealed.trajectory.violations == ("kept",) and not sealed.trajectory.counters.submitted
    assert [len(step.turn.message.calls) for step in sealed.trajectory.steps] == [1, 1]

    # Where the solution loses its sandbox as well, nothing is known, and nothing is scored.
    doomed = Doomed(provider)
    monkeypatch.setattr("guerdon.runtime.loop.episode.make", lambda name: Kills(doomed))
    summary = arun(run(calc(), Kills(doomed), RunConfig(retries=0), tmp_path / "b", doomed))
    assert (summary.total.passed, summary.total.failed, summary.total.invalid) == (0, 0, 1)
    assert len(doomed.made) == 3


def test_what_is_missing_is_one_line_with_its_remedy(slim_image, tmp_path):
    pack, runs = str(EXAMPLES / "mend_config"), f"store.runs={tmp_path / 'runs'}"
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    new = {"GUERDON_HOME": str(tmp_path / "home")}
    assert guerdon("plan", pack, "-o", str(tmp_path / "plan.json"), **new)[0] == 0
    for asset in (tmp_path / "home" / "assets").rglob("*"):
        if asset.is_file() and b"8080" in asset.read_bytes():
            asset.write_bytes(b"altered")
    cases = [
        (("run", pack, "policy=oracle,idle", "-m", runs), {**new, "PATH": str(tmp_path / "empty")},
         "podman is not installed", "apt-get install"),
        (("calibrate", pack, "--runs", str(tmp_path)), {**new, "PATH": str(tmp_path / "empty")},
         "podman is not installed", "apt-get install"),
        (("run", pack, "policy=oracle", runs), {"CONTAINER_HOST": f"unix://{tmp_path}/none"},
         "nothing answers at CONTAINER_HOST", "unset CONTAINER_HOST"),
        (("run", pack, "policy=oracle", f"store.runs={tmp_path / 'file' / 'runs'}"), {},
         "cannot be written: Not a directory", "name another folder"),
        (("calibrate", pack, "--runs", "/proc/runs"), {}, "/proc/runs", "name another folder"),
        (("run", pack, "policy=oracle", runs), {"GUERDON_HOME": str(tmp_path / "file")},
         "Not a directory", "set GUERDON_HOME"),
        (("lock", str(tmp_path / "plan.json")), {}, "is a plan", "name the pack"),
    ]
    for words, env, what, remedy in cases:
        status, said = guerdon(*words, **env)
        (error,) = [line for line in said.splitlines() if line.startswith("error: ")]
        assert status == 1 and what in error and remedy in error and said.endswith(error + "\n"), said


def test_a_full_disk_stops_a_run_that_goes_on_with_room(arun, calc, provider, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can make a small disk")
    try:
        filler = disk / "filler"
        filler.write_bytes(bytes(48 << 10))
        with pytest.raises(StoreFault, match="is full; make room and run the same command again"):
            arun(run(calc(rows=8), make("oracle"), RunConfig(), disk / "a", provider))
        filler.unlink()
        kept = len(lines(disk))
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        summary = arun(run(calc(rows=8), make("oracle"), RunConfig(), disk / "a", provider))
        assert 0 < kept < 8 and (summary.ran, summary.total.passed) == (8 - kept, 8)
    finally:
        subprocess.run(["umount", disk], check=True)
