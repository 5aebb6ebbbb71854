"""The service of a home of its own: started, found, killed, brought back, stopped."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from guerdon.runtime.contracts.sandbox import Resources, SandboxFault, SandboxSpec
from guerdon.runtime.sandbox import PodmanProvider, removal, sweep
from guerdon.runtime.sandbox.home import Home, default_home
from guerdon.runtime.sandbox.service import ensure_running, service_pid, service_status, stop_service

pytestmark = pytest.mark.podman
SMALL = Resources(memory=96 << 20, disk=8 << 20, pids=40)


@pytest.fixture
def home(provider):
    """A home that shares nothing with the session's but its images, read-only."""
    folder = Home(Path(tempfile.mkdtemp(prefix="gd-")))
    yield folder
    stop_service(folder)
    shutil.rmtree(folder.root, ignore_errors=True)


@pytest.fixture
def lone(arun, home, slim_image):
    """A provider on that home."""
    made = arun(PodmanProvider.start(home, stores=(default_home().storage,)))
    yield made
    arun(made.close())


def kill(home: Home) -> None:
    pid = service_pid(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while service_pid(home) is not None:
        pass


def test_started_found_stopped(home):
    assert service_status(home) == "stopped"
    assert ensure_running(home).state == "started"
    assert ensure_running(home).state == "found running"
    assert home.run.stat().st_mode & 0o066 == 0 and home.config.stat().st_mode & 0o077 == 0
    assert stop_service(home) and not stop_service(home)
    assert service_status(home) == "stopped" and not home.socket.exists()


def test_a_killed_service_is_restarted_and_says_so(home):
    ensure_running(home)
    kill(home)
    assert home.socket.exists() and service_status(home) == "died"
    assert ensure_running(home).state == "restarted after it had died"
    assert service_status(home) == "running"


def test_two_runners_start_one_service(home):
    program = ("import sys; from pathlib import Path; from guerdon.runtime.sandbox.service import ensure_running\n"
               "from guerdon.runtime.sandbox.home import Home; print(ensure_running(Home(Path(sys.argv[1]))).state)")
    runs = [subprocess.Popen([sys.executable, "-c", program, str(home.root)], stdout=subprocess.PIPE, text=True)
            for _ in range(3)]
    states = sorted(run.communicate(timeout=60)[0].strip() for run in runs)
    assert states == ["found running", "found running", "started"]


def test_the_service_outlives_its_starter_and_holds_none_of_its_streams(home):
    program = ("import sys; from pathlib import Path; from guerdon.runtime.sandbox.service import ensure_running\n"
               "from guerdon.runtime.sandbox.home import Home; ensure_running(Home(Path(sys.argv[1])))")
    # Reading to the end of the pipe would hang if the service held it.
    subprocess.run([sys.executable, "-c", program, str(home.root)], capture_output=True, timeout=60, check=True)
    pid = service_pid(home)
    assert pid is not None and os.getsid(pid) == pid


def test_kill_in_mid_run_is_a_fault_and_sandboxes_survive(arun, home, lone, slim_image):
    box = arun(lone.create(SandboxSpec(slim_image, resources=SMALL)))
    arun(box.run(["sh", "-c", "echo kept > /workspace/f"]))

    async def killed_meanwhile(work):
        task = asyncio.create_task(work)
        await asyncio.sleep(0.5)
        kill(home)
        return await task

    with pytest.raises(SandboxFault) as caught:
        arun(killed_meanwhile(box.run(["sleep", "30"])))
    assert caught.value.kind in ("service-lost", "exec-lost") and caught.value.remedy
    assert any("restarted after it had died" in note for note in lone.notes)
    shell = arun(box.shell())
    with pytest.raises(SandboxFault):
        arun(killed_meanwhile(shell.run("sleep 30", wall=60)))
    assert arun(box.run(["cat", "/workspace/f"])).stdout == b"kept\n"
    assert arun(shell.run("cat f", wall=20)).stdout == b"kept\n"
    assert [one.id for one in arun(sweep.listed(lone.engine))] == [box.id]
    kill(home)
    arun(box.remove())
    assert arun(sweep.listed(lone.engine)) == []


def test_a_container_whose_monitor_and_init_were_killed_is_removed(arun, lone, slim_image):
    box = arun(lone.create(SandboxSpec(slim_image, resources=SMALL)))
    state = arun(lone.engine.request("GET", f"/containers/{box.id}/json")).json()["State"]
    os.kill(state["ConmonPid"], signal.SIGKILL)
    os.kill(state["Pid"], signal.SIGKILL)
    arun(removal.remove(lone.engine, box.id))
    assert arun(sweep.listed(lone.engine)) == []


def test_a_given_socket_is_used_and_never_stopped(arun, home, monkeypatch):
    url = ensure_running(home).url
    monkeypatch.setenv("CONTAINER_HOST", url)
    report = ensure_running(Home(Path("/nonexistent/never-made")))
    assert (report.state, report.url) == ("given", url)
    stop_service(Home(Path("/nonexistent/never-made")))
    assert service_status(home) == "running"


@pytest.mark.parametrize("given, kind", [("unix:///nonexistent.sock", "service-down"),
                                         ("ssh://host/run/podman.sock", "service-unusable")])
def test_a_given_socket_that_does_not_answer_is_a_fault(monkeypatch, given, kind):
    monkeypatch.setenv("CONTAINER_HOST", given)
    with pytest.raises(SandboxFault) as caught:
        ensure_running()
    assert caught.value.kind == kind and given in caught.value.message and caught.value.remedy


def test_podman_missing_is_said_with_the_line_that_installs_it(home, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxFault) as caught:
        ensure_running(home)
    assert caught.value.kind == "podman-missing" and "apt-get install" in caught.value.remedy
