"""The verification role: a trusted root inside, a candidate of uid 1000 that cannot touch it."""

from __future__ import annotations

import pytest

from guerdon.runtime.contracts.sandbox import PutFile

pytestmark = pytest.mark.podman
CAPS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}


@pytest.fixture
def judge(opened):
    return opened(role="verify")


@pytest.fixture
def as_root(arun, judge):
    return lambda script: arun(judge.run(["sh", "-c", script], root=True))


@pytest.fixture
def as_user(arun, judge):
    return lambda script: arun(judge.run(["sh", "-c", script]))


def caps(output: bytes) -> dict[str, int]:
    lines = (line.split(":") for line in output.decode().splitlines() if line.startswith("Cap"))
    return {name: int(value, 16) for name, value in lines}


def test_root_has_six_capabilities_and_the_candidate_none(as_root, as_user):
    mask = sum(1 << bit for bit in CAPS.values())
    root = caps(as_root("cat /proc/self/status").stdout)
    assert root["CapEff"] == root["CapPrm"] == root["CapBnd"] == mask
    user = caps(as_user("cat /proc/self/status").stdout)
    assert user["CapEff"] == user["CapPrm"] == user["CapInh"] == user["CapAmb"] == 0
    dropped = as_root("python3 -c \"import os; os.setgroups([]); os.setresgid(1000, 1000, 1000); "
                      "os.setresuid(1000, 1000, 1000); print(open('/proc/self/status').read())\"")
    child = caps(dropped.stdout)
    assert child["CapEff"] == child["CapPrm"] == child["CapAmb"] == 0


def test_the_grader_folder_is_roots_alone(arun, judge, as_root, as_user):
    arun(judge.put([PutFile("/grader/key", b"secret")], root=True))
    assert as_root("cat /grader/key; stat -c '%u %a' /grader").stdout == b"secret0 700\n"
    done = as_user("ls /grader; cat /grader/key; cat /proc/1/root/grader/key; touch /grader/x; mv /grader /tmp/g")
    assert done.stdout == b"" and done.exit_code != 0


def test_the_candidate_cannot_kill_or_trace_the_harness(arun, judge, as_root, as_user):
    done = as_root("sleep 5 & p=$!; python3 -c \"import os; os.setresuid(1000, 1000, 1000); "
                   "os.system('kill -9 -1; kill -9 '+str($p)+'; cat /proc/'+str($p)+'/mem')\"; "
                   "kill -0 $p && echo lives")
    assert b"lives" in done.stdout
    as_root("(setsid sleep 1000 &)")
    as_user("(setsid sleep 1001 &)")
    arun(judge.quiesce())
    left = as_root("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert b"sleep 1000" in left and b"sleep 1001" not in left


def test_time_limit_ends_root_and_candidate(arun, judge, as_root):
    done = arun(judge.run(["sh", "-c", "(setsid sleep 1000 &); exec sleep 1000"], root=True, wall=0.5))
    assert done.timed_out
    assert b"sleep 1000" not in as_root("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout


@pytest.mark.parametrize("trap", [
    "ln -s /grader t", "ln -s /tmp/elsewhere t", "touch t", "mkfifo t",
    "mkdir -p t/test_a.py/deep && touch t/test_a.py/deep/x",
    "mkdir t; ln -s /etc/passwd t/test_a.py", "mkdir -m 0 t", "mkdir t; mkfifo t/test_a.py",
    "mkdir t; ln /workspace/own t/test_a.py",
])
def test_put_as_root_replaces_whatever_lies_there(arun, judge, as_user, as_root, trap):
    as_user(f"mkdir /tmp/elsewhere; echo mine > own; {trap}")
    arun(judge.put([PutFile("/workspace/t/test_a.py", b"real")], root=True, read_only=True))
    assert as_user("cat t/test_a.py; stat -c '%F %u %h' t t/test_a.py; cat own").stdout == (
        b"realdirectory 0 2\nregular file 0 1\nmine\n")
    assert as_root("ls -A /grader /tmp/elsewhere").stdout == b"/grader:\n\n/tmp/elsewhere:\n"


def test_read_only_files_cannot_be_changed_moved_or_shadowed(arun, judge, as_user):
    arun(judge.put([PutFile("/workspace/t/deep/test_a.py", b"real", 0o666)], root=True, read_only=True))
    as_user("echo no > t/deep/test_a.py; rm -rf t; mv t u; mv t/deep t/e; touch t/conftest.py; chmod 777 t t/deep; "
            "mkdir t2; mv -T t2 t; ln -sf /etc/passwd t/deep/test_a.py; echo own > new")
    done = as_user("cat t/deep/test_a.py; find t | sort; cat new")
    assert done.stdout == b"realt\nt/deep\nt/deep/test_a.py\nown\n"


def test_put_as_root_outside_the_writable_folders_is_refused(arun, judge):
    with pytest.raises(OSError) as caught:
        arun(judge.put([PutFile("/etc/x", b"")], root=True))
    assert caught.value.errno == 30


def test_collect_reads_what_only_root_can(arun, judge):
    arun(judge.put([PutFile("/grader/report", b"{}", 0o600)], root=True))
    assert [one.data for one in arun(judge.collect(["/grader/*"])).files] == [b"{}"]


def test_an_agents_sandbox_takes_nothing_as_root(arun, box):
    with pytest.raises(ValueError, match="verify"):
        arun(box.put([PutFile("/workspace/x", b"")], root=True))
