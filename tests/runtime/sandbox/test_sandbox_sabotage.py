"""An agent that fights the runtime itself: what it does must not become a fault of ours."""

from __future__ import annotations

import pytest

from guerdon.runtime.contracts.sandbox import PutFile, Resources, SandboxFault

pytestmark = pytest.mark.podman
FULL = "try:\n    while True:\n        if os.fork() == 0: signal.pause()\nexcept OSError: pass\n"
LOOP = ("if os.fork(): os._exit(0)\nos.setsid(); signal.signal(15, signal.SIG_IGN)\n"
        "while True:\n    try: os.kill(-1, {})\n    except OSError: pass\n")


@pytest.mark.parametrize("program", [FULL, LOOP.format(9), LOOP.format(19)], ids=["pids-full", "killer", "stopper"])
def test_put_shell_and_collect_work_beside_it(arun, opened, monkeypatch, program):
    # A stopped start shows only by its silence; the test need not wait as long as a loaded machine may.
    monkeypatch.setattr("guerdon.runtime.sandbox.execution.START_SECONDS", 4.0)
    monkeypatch.setattr("guerdon.runtime.sandbox.sandbox.HELPER_SECONDS", 6.0)
    box = opened(resources=Resources(memory=64 << 20, disk=8 << 20, pids=20))
    start = "import os, signal\n" + program

    arun(box.run(["python3", "-c", start], wall=10))
    arun(box.put([PutFile("/workspace/x", b"1")]))
    arun(box.run(["python3", "-c", start], wall=10))
    shell = arun(box.shell())
    arun(box.run(["python3", "-c", start], wall=10))
    arun(box.quiesce())
    assert arun(shell.run("cat x", wall=10)).stdout == b"1"
    assert [one.data for one in arun(box.collect(["/workspace/*"])).files] == [b"1"]


def test_taking_all_memory_in_kernel_objects_is_told_from_a_fault_of_ours(arun, opened):
    """Empty files cost kernel memory and belong to no process: in the end the kernel may pick PID 1."""
    box = opened(resources=Resources(memory=16 << 20, disk=4 << 20, pids=20))
    eat = ("echo 0 > /proc/self/oom_score_adj; mkdir -p d; cd d; i=0; "
           "while :; do : > " + "x" * 150 + "$i || exit; i=$((i+1)); done")
    kinds = set()
    for _ in range(3):
        try:
            kinds.add(arun(box.run(["sh", "-c", eat], wall=20)).exit_code)
            found = arun(box.collect(["/workspace/nothing"]))
            kinds.add(found.problem)
        except SandboxFault as fault:
            kinds.add(fault.kind)
    assert "sandbox-oom" in kinds or 137 in kinds
    assert not kinds & {"sandbox-died", "exec-lost", "service-slow", "service-down", "kill-failed"}
