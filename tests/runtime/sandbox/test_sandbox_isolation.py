"""What a process in a sandbox can reach, and where each limit bites."""

from __future__ import annotations

import pytest

from guerdon.runtime.contracts.sandbox import Resources, SandboxFault, SandboxSpec
from guerdon.runtime.sandbox.spec import memory_limit

pytestmark = pytest.mark.podman
MIB = 1024 * 1024


def test_the_agent_is_uid_1000_without_any_capability(sh):
    done = sh("id -u; id -g; id -G; cat /proc/self/status")
    lines = done.stdout.decode().splitlines()
    assert lines[:3] == ["1000", "1000", "1000"]
    status = dict(line.split(":", 1) for line in lines[3:] if ":" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


def test_root_inside_is_nobody_outside(sh):
    first, outer, size = sh("cat /proc/self/uid_map").stdout.split()
    assert first == b"0" and int(outer) >= 100_000 and int(size) <= 65536


def test_no_namespace_can_be_made_and_processes_still_can(sh):
    probe = (
        "import ctypes, errno, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for flag in (0x10000000, 0x00020000, 0x40000000):\n"
        "    print(libc.unshare(flag), ctypes.get_errno())\n"
        "    pid = libc.syscall(56, flag | 17, 0, 0, 0, 0)\n"
        "    if pid == 0: os._exit(0)\n"
        "    print(pid, ctypes.get_errno())\n"
        "print(libc.syscall(435, 0, 0), ctypes.get_errno())\n"
        "import threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "pid = os.fork()\n"
        "os._exit(0) if pid == 0 else os.waitpid(pid, 0)\n"
        "print('forked')\n"
    )
    lines = sh(f"python3 - <<'E'\n{probe}E").stdout.decode().splitlines()
    unshares, clones, clone3 = lines[0:6:2], lines[1:6:2], lines[6]
    assert unshares == ["-1 1"] * 3
    # Refused by the filter (whose default answer is ENOSYS), not by a missing capability.
    assert all(line.split()[0] == "-1" and line.split()[1] in ("1", "38") for line in clones)
    assert clone3 == "-1 38"
    assert lines[7:] == ["thread", "forked"]


def test_there_is_no_network(sh):
    done = sh("cat /sys/class/net/*/address | wc -l; ls /sys/class/net; cat /etc/resolv.conf; "
              "python3 -c \"import socket\ntry: socket.create_connection(('1.1.1.1', 53), 2)\n"
              "except OSError as e: print(e.errno)\"")
    assert done.stdout.split() == [b"1", b"lo", b"101"]


@pytest.mark.parametrize("path", ["/x", "/etc/x", "/usr/bin/x", "/root/x", "/var/x", "/dev/x", "/run/x", "/proc/x"])
def test_the_root_is_read_only(sh, path):
    done = sh(f"echo hi > {path}; test -e {path}")
    assert done.exit_code != 0


def test_nothing_of_the_host_can_be_reached(sh):
    done = sh("ls -A /var/lib/guerdon /srv /root 2>/dev/null; cat /proc/1/environ; ls /proc/1/root/; "
              "find / -xdev -name '*.sock' 2>/dev/null; hostname; ls -d /dev/sd* /dev/vd* /dev/mem /dev/kmsg /dev/fuse")
    assert done.stdout.split() == [b"/srv:", b"sandbox"]


def test_kernel_settings_cannot_be_written(sh):
    done = sh("for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper "
              "/proc/self/uid_map; do echo x > $f && echo wrote $f; done; cat /proc/kcore | head -c1; "
              "cat /proc/keys /proc/timer_list | head -c1; find /sys/fs/cgroup -writable 2>/dev/null")
    assert done.stdout == b""


def test_pid_1_can_be_neither_killed_nor_traced(sh):
    done = sh("kill -9 1; kill 1; kill -STOP 1; kill -9 -1; "
              "cat /proc/1/mem; ls /proc/1/fd; echo 1 > /proc/1/oom_score_adj")
    assert b"1" not in done.stdout
    assert sh("echo alive").stdout == b"alive\n"


def test_orphans_are_reaped(sh):
    sh("for i in 1 2 3 4 5; do (setsid sh -c 'exit 0' &) ; done; sleep 0.2")
    assert sh("cat /proc/[0-9]*/stat | grep -c ' Z '").stdout.strip() == b"0"


def test_memory_limit_kills_the_hog_and_nothing_else(sh, box):
    assert sh(f"python3 -c 'b = bytearray({memory_limit(box.spec) + MIB})'").exit_code == 137
    assert sh("python3 -c 'b = bytearray(8 << 20); print(len(b))'").stdout == b"8388608\n"


def test_limits_are_those_of_the_spec(arun, provider, box):
    """Swap and CPU have no effect that a test could see on every machine: Podman's own record is read."""
    reply = arun(provider.engine.request("GET", f"/containers/{box.id}/json")).json()["HostConfig"]
    assert reply["Memory"] == reply["MemorySwap"] == memory_limit(box.spec)
    assert (reply["CpuQuota"], reply["CpuPeriod"], reply["PidsLimit"]) == (100_000, 100_000, 40)


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/dev/shm"])
def test_disk_limit_is_enospc(sh, box, folder):
    done = sh(f"head -c 100000000 /dev/zero > {folder}/fill; stat -c %s {folder}/fill")
    assert b"No space left" in done.stderr
    assert int(done.stdout) <= box.spec.resources.disk


def test_full_disks_and_full_memory_together_leave_room_to_collect(arun, opened):
    box = opened(scratch=("/cache",))
    fill = "for d in /workspace /tmp /cache /dev/shm; do head -c 100000000 /dev/zero > $d/fill; done; du -cm /tmp"
    arun(box.run(["sh", "-c", fill + "; python3 -c 'b = bytearray(1 << 30)'"]))
    arun(box.quiesce())
    arun(box.run(["sh", "-c", "echo x > /workspace/fill"]))
    assert [one.data for one in arun(box.collect(["/workspace/*"])).files] == [b"x\n"]


def test_process_limit_stops_a_fork_bomb_and_it_can_be_killed(arun, opened):
    box = opened(resources=Resources(memory=96 * MIB, disk=8 * MIB, pids=30))
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    done = arun(box.run(["python3", "-c", bomb], wall=1.0))
    assert done.timed_out
    count = arun(box.run(["sh", "-c", "ls /proc | grep -c '^[0-9]'"]))
    # PID 1, its sleep, sh, ls, grep: nothing of the bomb is left.
    assert int(count.stdout) <= 5
    tries = ("import os, signal\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: signal.pause()\n"
             "        n += 1\nexcept OSError as e: print(n, e.errno)\n")
    n, number = arun(box.run(["python3", "-c", tries], wall=10.0)).stdout.split()
    assert int(n) <= 30 and number == b"11"


def test_environment_holds_nothing_of_the_host(sh):
    names = {line.split(b"=")[0] for line in sh("env").stdout.splitlines()}
    assert names == {b"HOSTNAME", b"HOME", b"PATH", b"LANG", b"TZ", b"PWD", b"OLDPWD"}
    assert sh("date +%Z; hostname").stdout == b"UTC\nsandbox\n"


@pytest.mark.parametrize("path", ["relative", "/", "/usr/bin", "/a/../b", "/proc", "/a/"])
def test_system_folders_cannot_be_made_writable(arun, provider, slim_image, path):
    with pytest.raises(SandboxFault) as caught:
        arun(provider.create(SandboxSpec(slim_image, workdir=path)))
    assert caught.value.kind == "bad-spec" and caught.value.remedy
