"""Running programs: results, bounds, and time limits that end whole process trees."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.podman
DAEMON = ("import os, signal, sys, time\n"
          "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
          "if os.fork(): os.wait() if sys.argv[1] == 'stay' else os._exit(0)\n"
          "os.setsid()\n"
          "if os.fork(): os._exit(0)\n"
          "print('daemon', flush=True)\n"
          "time.sleep(1000)\n")


def processes(sh) -> int:
    """Processes of uid 1000 that were there before this count."""
    count = ("import os\nprint(sum(os.stat(f'/proc/{p}').st_uid == 1000 for p in os.listdir('/proc')"
             " if p.isdigit() and int(p) != os.getpid()))")
    return int(sh(f"exec python3 -c \"{count}\"").stdout)


def test_streams_exit_code_stdin_environment_and_folder(arun, box):
    done = arun(box.run(["sh", "-c", "cat; echo $A >&2; pwd; exit 7"], stdin=b"in\0\xff", env={"A": "1 2"}, cwd="/tmp"))
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"in\0\xff/tmp\n", b"1 2\n")
    assert not done.timed_out and not done.truncated


def test_arguments_are_never_parsed_by_a_shell(arun, box):
    words = ["$(id)", "a b", "'", "", "*", "-n", "\n"]
    done = arun(box.run(["python3", "-c", "import sys; print(sys.argv[1:])", *words]))
    assert done.stdout.decode().strip() == repr(words)


def test_what_is_not_there_is_the_programs_failure_not_a_fault(arun, box):
    assert arun(box.run(["nonesuch"])).exit_code == 127
    assert arun(box.run(["/etc/passwd"])).exit_code == 126
    assert arun(box.run(["true"], cwd="/nowhere")).exit_code == 126


def test_a_program_cannot_pass_itself_off_as_a_failed_start(sh):
    done = sh("echo 'Error: crun: cannot set up: OCI runtime error' >&2; exit 126")
    assert done.exit_code == 126 and done.stderr.startswith(b"Error: crun")


def test_large_stdin_arrives_and_unread_stdin_does_no_harm(arun, box):
    assert arun(box.run(["wc", "-c"], stdin=b"x" * 5_000_000)).stdout == b"5000000\n"
    for _ in range(5):
        done = arun(box.run(["sh", "-c", "echo out; echo err >&2; exit 3"], stdin=b"x" * 5_000_000))
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_output_is_cut_at_the_limit_and_the_program_goes_on(sh):
    done = sh("head -c 30000000 /dev/zero; head -c 200000 /dev/zero >&2; exit 5", output=1000)
    assert done.truncated and done.exit_code == 5
    assert done.stdout == bytes(1000) and done.stderr == bytes(1000)


def test_output_of_exactly_the_limit_is_whole(sh):
    done = sh("head -c 1000 /dev/zero; head -c 1000 /dev/zero >&2", output=1000)
    assert not done.truncated and len(done.stdout) == len(done.stderr) == 1000


def test_endless_output_ends_at_the_time_limit(sh):
    done = sh("yes", wall=0.5, output=4096)
    assert done.timed_out and done.exit_code is None and len(done.stdout) == 4096
    assert processes(sh) == 0


def test_time_limit_kills_a_daemon_that_ignores_signals_and_holds_the_pipe(sh):
    done = sh(f"python3 -c \"{DAEMON}\" stay & python3 -c \"{DAEMON}\" stay; sleep 1000", wall=1.0)
    assert done.timed_out and done.exit_code is None and b"daemon" in done.stdout
    assert done.seconds < 20
    assert processes(sh) == 0


def test_a_daemon_left_behind_does_not_hold_up_the_result(sh, arun, box):
    done = sh(f"python3 -c \"{DAEMON}\" leave; sleep 0.3; echo done", wall=60.0)
    assert done.exit_code == 0 and done.stdout.endswith(b"done\n") and done.seconds < 30
    assert processes(sh) == 1
    arun(box.quiesce())
    assert processes(sh) == 0


def test_a_cancelled_run_leaves_nothing_running(arun, box, sh):
    async def cancel() -> None:
        task = asyncio.create_task(box.run(["sleep", "1000"]))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    arun(cancel())
    assert processes(sh) == 0


def test_only_the_verify_role_has_root(arun, box):
    with pytest.raises(ValueError, match="verify"):
        arun(box.run(["id"], root=True))


@pytest.mark.parametrize("seen", [True, False])
def test_quiesce_kills_all_that_the_user_runs(arun, box, sh, monkeypatch, seen):
    if not seen:
        # A service whose processes this host cannot see: the kill goes through an exec.
        monkeypatch.setattr("guerdon.runtime.sandbox.hostside.ours", lambda pid, container: False)
    sh(f"for i in 1 2 3; do python3 -c \"{DAEMON}\" leave; done; (sh -c 'kill -STOP $$' &); sleep 0.3")
    assert processes(sh) >= 3
    arun(box.quiesce())
    assert processes(sh) == 0
