"""Whole episodes in a real sandbox: limits, counters, rules, and a hostile policy."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from guerdon.compiler.plan.expr import Const
from guerdon.compiler.plan.schema import (
    ForbidPlan,
    InstancePlan,
    LimitsPlan,
    RewardPlan,
    TaskPlan,
    ToolPlan,
    VerifierPlan,
)
from guerdon.runtime.agent.rollout import rollout
from guerdon.runtime.agent.setup import fill
from guerdon.runtime.contracts.policy import Episode
from guerdon.runtime.contracts.sandbox import PutFile, Resources, SandboxFault, SandboxSpec
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Message, ToolCall, Turn

pytestmark = pytest.mark.podman

STRING = {"type": "string"}
BASH = ToolPlan("bash", "", {
    "type": "object", "required": ["command"], "additionalProperties": False,
    "properties": {"command": {"anyOf": [STRING, {"type": "array", "items": STRING}]}},
})
PUT = ToolPlan("put", "", {
    "type": "object", "required": ["path", "content"], "additionalProperties": False,
    "properties": {"path": STRING, "content": STRING, "mode": STRING},
})
SUBMIT = ToolPlan("submit", "", {"type": "object", "properties": {"answer": STRING}, "additionalProperties": False})
SPEC = EpisodeSpec("sha256:p", "t", "r", 0, 0, "test")
START = (PutFile("/workspace/a.txt", b"a\n"), PutFile("/workspace/tests/t.py", b"x = 1\n"))


class Says(Episode):
    """Plays turns given as (words, calls); records what it was shown."""

    def __init__(self, turns):
        self.turns = iter(turns)
        self.seen: Sequence[Message] = ()

    async def act(self, messages):
        self.seen = tuple(messages)
        given = next(self.turns, None)
        if given is None:
            return None
        if isinstance(given, Turn):
            return given
        words, calls = given
        made = tuple(
            ToolCall(f"c{i}", name, raw if isinstance(raw, str) else json.dumps(raw))
            for i, (name, raw) in enumerate(calls)
        )
        return Turn(Message("assistant", words, made))


def bash(command):
    return ("", [("bash", {"command": command})])


DONE = ("", [("submit", {})])
TEN_TURNS = LimitsPlan(10, None, 60_000)


@pytest.fixture
def play(arun, provider, slim_image):
    """Run one episode of turns; gives the rollout, and the text of each observation."""

    def go(turns, *, limits=TEN_TURNS, forbids=(), collect=("/workspace/**",), policy=None):
        task = TaskPlan("t", (BASH, PUT, SUBMIT), limits, forbids, (),
                        RewardPlan("r", Const(True), (), Const(True), {}, "0", "0", ()), 1, {})
        verify = (VerifierPlan("v", "pytest", {}, collect, (), 1000, {}, ()),)
        instance = InstancePlan("t", "r", "", "Go.", None, (), verify, (), (), {})

        async def episode():
            spec = SandboxSpec(slim_image, scratch=("/tmp",), resources=Resources(disk=16 << 20))
            sandbox = await provider.create(spec)
            try:
                await fill(sandbox, START)
                return await rollout(SPEC, task, instance, policy or Says(turns), sandbox)
            finally:
                await sandbox.remove()

        done = arun(episode())
        return done, [m.content for step in done.trajectory.steps for m in step.observations]

    return go


def test_an_ordinary_episode(play):
    done, told = play([
        bash("cd tests; X=5"), bash("pwd; echo $X; cat t.py"), bash(["printf", "%s\n", "it's $HOME"]),
        ("", [("put", {"path": "/workspace/new/b.txt", "content": "é\n", "mode": "755"})]),
        ("bye", [("submit", {"answer": "42"})]),
    ])
    assert told == [
        "[exit code 0]", "/workspace/tests\n5\nx = 1\n[exit code 0]", "it's $HOME\n[exit code 0]",
        "wrote 3 bytes to /workspace/new/b.txt", "submitted",
    ]
    trajectory = done.trajectory
    counters = trajectory.counters
    assert (counters.turns, counters.tool_calls, counters.malformed_calls, counters.repeated_calls) == (5, 5, 0, 0)
    assert counters.submitted and not counters.truncated and 0 < counters.wall_ms < 60_000
    assert trajectory.answer == "42" and trajectory.prompt == (Message("user", "Go."),)
    files = {f.path: (f.data, f.mode & 0o777) for f in done.artefacts["/workspace/**",].files}
    assert files["/workspace/new/b.txt"] == ("é\n".encode(), 0o755) and len(files) == 3


def test_exit_codes_errors_and_text_that_is_no_utf8(play):
    _, told = play([bash("echo out; echo err >&2; exit 3"), bash("printf '\\377ok'"), bash("nonesuch"), DONE])
    assert sorted(told[0].splitlines()[:-1]) == ["err", "out"] and told[0].endswith("[exit code 3]")
    assert told[1] == "\ufffdok\n[exit code 0]"
    assert "not found" in told[2] and told[2].endswith("[exit code 127]")


def test_malformed_calls_are_told_counted_and_not_run(play):
    done, told = play([
        ("", [("bsh", {"command": "touch /workspace/x"}), ("bash", '{"command": "touch'),
              ("bash", {"cmd": "touch /workspace/x"})]),
        ("", [("bash", {"command": "a\0b"}), ("bash", {"command": " "}), ("put", {"path": "b", "content": ""})]),
        Turn(Message("assistant", ""), malformed=("a <tool_call> is not closed",)),
        DONE,
    ])
    assert "did you mean 'bash'?" in told[0] and "You have: bash, put, submit" in told[0]
    assert "not valid JSON" in told[1] and "must have 'command'" in told[2]
    assert "NUL" in told[3] and "empty" in told[4] and "absolute" in told[5] and "not closed" in told[6]
    assert all(t.startswith("error: ") for t in told[:7])
    counters = done.trajectory.counters
    assert (counters.malformed_calls, counters.tool_calls, counters.turns) == (7, 1, 4)
    assert "/workspace/x" not in {f.path for f in done.artefacts["/workspace/**",].files}


def test_the_same_call_again_is_repeated_whatever_its_spacing(play):
    done, _ = play([
        ("", [("bash", '{"command":"true"}'), ("bash", '{ "command" : "true" }'),
              ("bash", '{"command":"\\u0074rue"}')]),
        bash("true "), DONE,
    ])
    assert done.trajectory.counters.repeated_calls == 2 and done.trajectory.counters.tool_calls == 5


def test_what_comes_after_submit_is_ignored_and_told(play):
    done, told = play([("", [("submit", {}), ("bash", {"command": "touch /workspace/late"})]), bash("true")])
    assert told[1].startswith("ignored:") and done.trajectory.counters.turns == 1
    assert "/workspace/late" not in {f.path for f in done.artefacts["/workspace/**",].files}


def test_a_turn_makes_at_most_sixteen_calls(play):
    many = ("", [("bash", {"command": "echo >> /workspace/n"})] * 20)
    done, told = play([many, Turn(Message("assistant", ""), malformed=("x",) * 40), DONE])
    assert told[15] == "[exit code 0]" and told[16:20] == ["ignored: a turn makes at most 16 calls"] * 4
    counters = done.trajectory.counters
    assert (counters.tool_calls, counters.malformed_calls, counters.repeated_calls) == (17, 16, 15)
    (lines,) = (f.data for f in done.artefacts["/workspace/**",].files if f.path == "/workspace/n")
    assert lines == b"\n" * 16


def test_limits_of_turns_and_tokens(play):
    done, _ = play([bash(f"echo {n}") for n in range(9)], limits=LimitsPlan(3, None, 60_000))
    assert done.trajectory.counters.turns == 3 and done.trajectory.counters.truncated
    done, told = play([bash("echo " + "x" * 500), DONE], limits=LimitsPlan(3, 100, 60_000))
    assert done.trajectory.counters.truncated and done.trajectory.counters.tokens == 100
    assert told == ["The limit of 100 tokens was reached; nothing was run."]


def test_the_wall_limit_ends_a_command_and_a_policy_that_hang(play):
    done, told = play([bash("sleep 60"), DONE], limits=LimitsPlan(5, None, 1500))
    assert "timed out" in told[0] and done.trajectory.counters.truncated
    assert done.trajectory.counters.wall_ms == 1500 and not done.trajectory.counters.submitted

    class Hangs(Episode):
        async def act(self, messages):
            await asyncio.sleep(60)

    done, told = play([], policy=Hangs(), limits=LimitsPlan(5, None, 300))
    assert done.trajectory.counters.truncated and done.trajectory.counters.turns == 0 and told == []


def test_a_flood_of_output_is_cut_and_said(play):
    _, told = play([bash("seq 100000"), bash("yes | head -c 30000000"), DONE])
    assert told[0].startswith("1\n2\n3\n") and told[0].endswith("99999\n100000\n[exit code 0]")
    # seq 100000 prints 588,895 bytes, 16,384 of them are shown
    assert f"[output cut: {588_895 - 16_384} bytes left out]" in told[0]
    assert "[output cut: more than " in told[1] and len(told[1]) < 20_000


def test_words_without_a_call_go_on_and_none_ends(play):
    policy = Says([("thinking", []), ("done thinking", [])])
    done, told = play([], policy=policy)
    assert told == ["No tool was called. Call one, or submit when the work is done."] * 2
    assert done.trajectory.answer == "done thinking" and not done.trajectory.counters.submitted
    assert [m.role for m in policy.seen] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("command", "broke"),
    [
        ("true", ()), ("echo >> tests/t.py", ("kept",)), ("rm tests/t.py", ("kept",)), ("touch tests/u.py", ("kept",)),
        ("chmod 700 tests/t.py", ("kept",)), ("ln -s /etc/passwd tests/l", ("kept",)),
        ("cp tests/t.py x; echo > tests/t.py; cp x tests/t.py", ()), ("echo reboot", ("no_reboot",)),
        ("(sleep 1; echo late >> tests/t.py) & echo reboot >> tests/t.py", ("kept", "no_reboot")),
    ],
)
def test_forbid(play, command, broke):
    rules = (
        ForbidPlan("kept", "changed", globs=("/workspace/tests/**",)),
        ForbidPlan("no_reboot", "called", tool="bash", pattern=r"\breboot\b"), ForbidPlan("net", "network"),
    )
    done, _ = play([bash(command), DONE], forbids=rules)
    assert done.trajectory.violations == broke and done.trajectory.counters.violations == len(broke)


def test_nothing_left_running_changes_what_was_frozen(play):
    done, _ = play([bash("(trap '' TERM; while :; do date +%N > /workspace/a.txt; done) & disown"), DONE])
    assert done.trajectory.counters.submitted
    assert done.artefacts["/workspace/**",].problem is None


def test_a_full_disk_is_the_agents_own(play):
    done, told = play([
        bash("head -c 100000000 /dev/zero > /workspace/big; echo $?"),
        ("", [("put", {"path": "/workspace/more", "content": "x" * 100_000})]),
        ("", [("put", {"path": "/etc/passwd", "content": "x"})]), DONE,
    ])
    assert "No space left" in told[0] and told[1].startswith("error: cannot write /workspace/more")
    assert told[2].startswith("error: cannot write /etc/passwd")
    assert done.trajectory.counters.malformed_calls == 0 and done.trajectory.counters.tool_calls == 4


def test_files_that_do_not_fit_are_the_packs_fault(arun, provider, slim_image):
    async def go():
        sandbox = await provider.create(SandboxSpec(slim_image, resources=Resources(disk=4 << 20)))
        try:
            await fill(sandbox, (PutFile("/workspace/big", bytes((4 << 20) + 50_000)),))
        finally:
            await sandbox.remove()

    with pytest.raises(SandboxFault, match="give the environment more `disk`"):
        arun(go())


def test_a_lost_sandbox_is_a_fault_and_no_observation(arun, provider, slim_image):
    async def go():
        sandbox = await provider.create(SandboxSpec(slim_image))

        class Removes(Episode):
            async def act(self, messages):
                await sandbox.remove()
                return Turn(Message("assistant", "", (ToolCall("c", "bash", '{"command": "true"}'),)))

        task = TaskPlan("t", (BASH,), LimitsPlan(3, None, 20_000), (), (),
                        RewardPlan("r", Const(True), (), Const(True), {}, "0", "0", ()), 1, {})
        instance = InstancePlan("t", "r", "", "Go.", None, (), (), (), (), {})
        return await rollout(SPEC, task, instance, Removes(), sandbox)

    with pytest.raises(SandboxFault):
        arun(go())
