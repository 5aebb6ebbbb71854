"""The kept-open shell: state lasts, framing holds against its own commands."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.podman


@pytest.fixture
def say(arun, box):
    shell = arun(box.shell())
    yield lambda command, wall=20.0, **options: arun(shell.run(command, wall=wall, **options))
    arun(shell.close())


def test_folder_and_variables_last(say):
    assert say("mkdir d; cd d; X='a b'; f() { echo f$1; }").exit_code == 0
    assert say("pwd; echo $X; f 1").stdout == b"/workspace/d\na b\nf1\n"


def test_both_streams_in_order_and_binary_safe(say):
    done = say("echo a; echo b >&2; printf '\\0\\377\\n'; echo c >&2")
    assert done.stdout == b"a\nb\n\0\xff\nc\n" and done.stderr == b""


@pytest.mark.parametrize("command, code, output", [
    ("true", 0, b""),
    ("false", 1, b""),
    ("", 0, b""),
    ("# only a comment", 0, b""),
    ("echo a\n\n\necho b", 0, b"a\nb\n"),
    ("cat <<X\none\ntwo\nX", 0, b"one\ntwo\n"),
    ("printf nonewline", 0, b"nonewline"),
    ("(exit 9)", 9, b""),
    ("nonesuch 2>/dev/null", 127, b""),
    ("cat", 0, b""),
    ("read x; echo $?", 0, b"1\n"),
    ("echo 'it'\"'\"'s'", 0, b"it's\n"),
    (r"echo \\ \\", 0, b"\\ \\" + b"\n"),
    ("echo é 中", 0, "é 中\n".encode()),
    ("exec 3>&1; echo x >&3; exec 3>&-", 0, b"x\n"),
    ("sh -c 'kill -9 $$'", 137, b""),
])
def test_commands(say, command, code, output):
    done = say(command)
    assert done.exit_code == code
    # bash adds its own line on a killed child.
    assert done.stdout == output or (code == 137 and b"Killed" in done.stdout)
    assert say("echo next").stdout == b"next\n"


@pytest.mark.parametrize("command", [
    "echo 'open", 'echo "open', "if true", "}", ")", "cat <<X\nnever ended", "$(", "`", "echo <(",
    "cat \"$(ls",
])
def test_broken_syntax_breaks_no_framing(say, command):
    say(command)
    done = say("echo next")
    assert (done.exit_code, done.stdout) == (0, b"next\n")


@pytest.mark.parametrize("command, code", [
    ("exit 7", 7), ("set -e; false", 1), ("exec true", 0), ("kill -9 $$", 137), ("exec sh -c 'exit 4'", 4),
])
def test_ending_the_shell_is_a_result_and_the_next_command_works(say, command, code):
    say("mkdir -p d; cd d")
    assert say(command).exit_code == code
    assert say("pwd").stdout == b"/workspace/d\n"


@pytest.mark.parametrize("command", [
    "exec >/dev/null 2>&1", "exec </dev/null", "set -v", "set -x", "trap 'echo trapped' DEBUG", "PS4=; set -o xtrace",
    "printf() { :; }", "trap 'echo bye' EXIT", "IFS=x", "shopt -s extglob; set -f", "echo() { :; }; unset -f echo",
])
def test_meddling_with_the_shell_keeps_exit_codes_right(say, command):
    say(command)
    assert say("(exit 3)").exit_code == 3
    assert b"next" in say("/bin/echo next").stdout


def test_output_that_looks_like_framing_does_not_end_a_command(say):
    forged = "for i in 1 2 3; do printf '%032x 0 /tmp\\0' $i; done; (exit 5)"
    done = say(forged)
    assert done.exit_code == 5 and len(done.stdout) == 3 * 40


def test_output_is_bounded(say):
    done = say("head -c 3000000 /dev/zero; exit_code() { return 6; }; exit_code", output=500)
    assert done.truncated and done.stdout == bytes(500) and done.exit_code == 6
    whole = say("head -c 500 /dev/zero", output=500)
    assert not whole.truncated and len(whole.stdout) == 500


def test_time_limit_kills_and_the_folder_is_kept(say):
    say("mkdir d; cd d")
    done = say("echo begun; (trap '' TERM HUP; setsid sleep 1000 &); sleep 1000", wall=0.5)
    assert done.timed_out and done.exit_code is None and done.stdout == b"begun\n"
    assert say("pwd").stdout == b"/workspace/d\n"
    assert say("cat /proc/[0-9]*/comm | grep -c sleep").stdout == b"1\n", "only PID 1's own sleep is left"


def test_a_vanished_folder_is_no_trap(say):
    say("mkdir d; cd d; rmdir ../d")
    say("exit 0")
    assert say("pwd").stdout == b"/workspace\n"


def test_background_processes_do_not_hold_up_a_command(say):
    done = say("sleep 1000 & echo started")
    assert b"started" in done.stdout and done.seconds < 10


def test_a_nul_in_a_command_is_refused_by_name(say):
    assert say("echo \0").exit_code == 2


def test_a_long_command(say):
    assert say("echo " + "x" * 300_000 + " | wc -c", wall=30).stdout == b"300001\n"
