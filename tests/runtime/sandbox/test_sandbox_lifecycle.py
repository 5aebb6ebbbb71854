"""From creation to removal: nothing stays, many live side by side, the dead are swept."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guerdon.runtime.contracts.sandbox import ImageRecipe, Resources, SandboxFault, SandboxSpec
from guerdon.runtime.sandbox import PodmanProvider, sweep
from guerdon.runtime.sandbox.doctor import examine

pytestmark = pytest.mark.podman
MIB = 1024 * 1024
SMALL = Resources(memory=96 * MIB, disk=8 * MIB, pids=40)


def traces(container: str) -> list[str]:
    """Processes, mounts and folders that name a container."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "cgroup").read_bytes()
                text += (entry / "mountinfo").read_bytes() if entry.name != "self" else b""
            except OSError:
                continue
            if container.encode() in text:
                found.append(f"process {entry.name}")
    for pattern in ("*/libpod_parent/libpod-" + container, "*/libpod-" + container):
        found += [str(path) for path in Path("/sys/fs/cgroup").glob(pattern)]
    return found


def settled(container: str) -> list[str]:
    """What is left once the monitors had their second to end."""
    for _ in range(60):
        left = traces(container)
        if not left:
            return []
        time.sleep(0.1)
    return left


def test_removal_leaves_no_container_process_mount_or_cgroup(arun, provider, slim_image):
    box = arun(provider.create(SandboxSpec(slim_image, resources=SMALL)))
    shell = arun(box.shell())
    arun(shell.run("sleep 1000 &", wall=5))
    arun(box.run(["sh", "-c", "setsid sleep 1000 &"]))
    assert traces(box.id)
    arun(box.remove())
    arun(box.remove())
    assert box.id not in [one.id for one in arun(sweep.listed(provider.engine))]
    assert settled(box.id) == []


def test_a_removed_sandbox_answers_with_a_fault(arun, provider, slim_image):
    box = arun(provider.create(SandboxSpec(slim_image, resources=SMALL)))
    arun(box.remove())
    for call in (lambda: box.run(["true"]), box.shell, box.quiesce, lambda: box.collect(["/workspace/*"])):
        with pytest.raises(SandboxFault) as caught:
            arun(call())
        assert caught.value.kind in ("sandbox-gone", "sandbox-died") and caught.value.remedy


def test_a_sandbox_removed_from_outside_in_mid_run_is_a_fault_not_a_result(arun, provider, opened):
    box = opened()

    async def both():
        task = asyncio.create_task(box.run(["sleep", "1000"]))
        await asyncio.sleep(0.5)
        await provider.engine.request("DELETE", f"/containers/{box.id}?force=true&timeout=0")
        return await task

    with pytest.raises(SandboxFault) as caught:
        arun(both())
    assert caught.value.kind in ("sandbox-gone", "sandbox-died", "sandbox-oom", "exec-lost")


def test_a_service_whose_processes_this_host_cannot_see_serves_as_well(arun, opened, monkeypatch):
    monkeypatch.setattr("guerdon.runtime.sandbox.hostside.ours", lambda pid, container: False)
    box = opened(scratch=("/cache",))
    owners = arun(box.run(["stat", "-c", "%u %a", "/workspace", "/cache"])).stdout
    assert owners == b"1000 755\n1000 755\n"
    assert arun(box.run(["sh", "-c", "(setsid sleep 1000 &); sleep 1000"], wall=0.5)).timed_out
    left = arun(box.run(["sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep"])).stdout
    assert left == b"1\n", "only PID 1's own sleep is left"
    judge = opened(role="verify")
    assert arun(judge.run(["sh", "-c", "(setsid sleep 1000 &); sleep 1000"], root=True, wall=0.5)).timed_out
    assert arun(judge.run(["true"])).exit_code == 0


def test_eight_side_by_side_do_not_meet(arun, provider, slim_image):
    async def one(number: int) -> tuple[bytes, str]:
        box = await provider.create(SandboxSpec(slim_image, resources=SMALL))
        try:
            shell = await box.shell()
            for _ in range(20):
                await shell.run(f"echo {number} >> f", wall=20)
            return (await shell.run("sort f | uniq -c", wall=20)).stdout, box.id
        finally:
            await box.remove()

    async def all_of_them():
        return await asyncio.gather(*(one(number) for number in range(8)))

    results = arun(all_of_them())
    assert [out.split() for out, _ in results] == [[b"20", str(number).encode()] for number in range(8)]
    assert len({container for _, container in results}) == 8


def test_user_namespaces_do_not_overlap(arun, opened):
    boxes = [opened(), opened()]
    maps = [arun(box.run(["cat", "/proc/self/uid_map"])).stdout.split() for box in boxes]
    (_, first, size), (_, second, _) = ([int(word) for word in line] for line in maps)
    assert abs(first - second) >= size


def test_labels_are_kept_and_ours_cannot_be_overridden(arun, provider, slim_image):
    box = arun(provider.create(SandboxSpec(slim_image, resources=SMALL), {"task": "x", "guerdon.owner": "1:1"}))
    row = next(one for one in arun(sweep.listed(provider.engine)) if one.id == box.id)
    assert row.labels["task"] == "x" and row.labels["guerdon.owner"].startswith(f"{os.getpid()}:")
    assert row.owner_alive and row.state == "running"
    arun(box.remove())


def test_sweep_removes_what_a_killed_runner_left_and_nothing_else(arun, provider, opened, slim_image):
    program = ("import asyncio, os, signal, sys\n"
               "from guerdon.runtime.sandbox import PodmanProvider\n"
               "from guerdon.runtime.contracts.sandbox import SandboxSpec\n"
               "async def main():\n"
               "    p = await PodmanProvider.start()\n"
               "    box = await p.create(SandboxSpec(sys.argv[1]))\n"
               "    print(box.id, flush=True)\n"
               "    os.kill(os.getpid(), signal.SIGKILL)\n"
               "asyncio.run(main())\n")
    mine = opened()
    done = subprocess.run([sys.executable, "-c", program, slim_image], capture_output=True, text=True, timeout=60,
                          check=False)
    left = done.stdout.strip()
    row = next(one for one in arun(sweep.listed(provider.engine)) if one.id == left)
    assert not row.owner_alive
    assert left in arun(sweep.sweep(provider.engine))
    ids = [one.id for one in arun(sweep.listed(provider.engine))]
    assert left not in ids and mine.id in ids
    assert settled(left) == []


def test_close_removes_what_is_held(arun, slim_image):
    other = arun(PodmanProvider.start())
    box = arun(other.create(SandboxSpec(slim_image, resources=SMALL)))
    arun(other.close())
    assert box.id not in [one.id for one in arun(sweep.listed(other.engine))]


def test_a_missing_image_is_a_fault_with_a_remedy(arun, provider):
    with pytest.raises(SandboxFault) as caught:
        arun(provider.create(SandboxSpec("f" * 64)))
    assert caught.value.kind == "image-gone" and caught.value.remedy


def test_the_image_is_found_again(arun, provider, slim_image):
    assert arun(provider.ensure_image(ImageRecipe("debian", ("git", "python3", "python3-pytest")))) == slim_image


def test_an_archive_is_loaded_once_and_a_broken_one_is_a_fault(arun, provider, slim_image, tmp_path):
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"not an archive")
    for path, kind in ((broken, "image-failed"), (tmp_path / "none.tar", "image-unreadable")):
        with pytest.raises(SandboxFault) as caught:
            arun(provider.ensure_image(ImageRecipe("archive", reference=str(path))))
        assert caught.value.kind == kind


def test_doctor_finds_this_machine_fit(arun):
    findings = {one.name: one for one in arun(examine())}
    assert {"podman", "runtime", "cgroup", "user", "subuid", "disk", "service", "leftovers"} <= set(findings)
    assert findings["service"].ok and findings["podman"].extra["version"][0].isdigit()
    assert all(one.ok or one.remedy for one in findings.values())
