"""Policies: which episodes they make, and the turns that they play."""

import asyncio
import base64
import json
import subprocess
import sys

import pytest

from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.schema import (
    EnvironmentPlan,
    ExploitPlan,
    InstancePlan,
    StepPlan,
    ToolPlan,
    VerifierPlan,
)
from guerdon.runtime.contracts.policy import Occasion, PolicyFault
from guerdon.runtime.contracts.store import AssetFault
from guerdon.runtime.policy.equals_all import equals_all
from guerdon.runtime.policy.scripted import load_script
from guerdon.runtime.policy.table import ATTACKS, POLICIES, make

BASH, PUT, SUBMIT = (ToolPlan(name, "", {}) for name in ("bash", "put", "submit"))
SUBMITS = StepPlan("call", tool="submit", arguments={})


class Memory:
    def __init__(self):
        self.held = {}

    def put(self, data):
        self.held[digest(data)] = data
        return digest(data)

    def tree(self, files):
        manifest = [[name, mode, self.put(data)] for name, mode, data in files]
        return "tree-" + self.put(dumps(manifest))

    def read(self, wanted):
        if wanted not in self.held:
            raise AssetFault(f"{wanted} is not here")
        return self.held[wanted]


def occasion(tools=(BASH, SUBMIT), solution=(), exploits=(), assets=None, files=(), collect=()):
    verify = (VerifierPlan("v", "pytest", {}, collect, (), 1000, {}, ()),)
    instance = InstancePlan("t", "r", "", "go", "env", (), verify, solution, exploits, {})
    environment = EnvironmentPlan("slim", "/workspace", files, (), 1000, 1, 1, 1, "none")
    return Occasion(instance, tools, environment, assets or Memory())


def play(policy, where, variant=None):
    async def turns():
        episode, found = policy.start(where, variant or policy.name, 0), []
        while (turn := await episode.act([])) is not None:
            found.append(turn)
        return found

    return asyncio.run(turns())


def calls(turns):
    return [(c.name, json.loads(c.arguments)) for turn in turns for c in turn.message.calls]


def test_named_trajectories_of_the_language():
    where = occasion()
    assert play(make("idle"), where) == []
    (refusal,) = play(make("refusal"), where)
    assert refusal.message.content and not refusal.message.calls
    assert calls(play(make("quit"), where)) == [("submit", {})]


def test_quit_makes_no_episode_where_nothing_can_be_submitted():
    assert make("quit").variants(occasion(tools=())) == ()


def test_oracle_plays_one_step_a_turn():
    steps = (StepPlan("say", text="hm"), StepPlan("put", path="/w/a", content={"text": "x\n"}), SUBMITS)
    turns = play(make("oracle"), occasion((BASH, PUT, SUBMIT), steps))
    assert [len(t.message.calls) for t in turns] == [0, 1, 1]
    assert turns[0].message.content == "hm"
    assert calls(turns) == [("put", {"path": "/w/a", "content": "x\n"}), ("submit", {})]
    assert make("oracle").variants(occasion()) == ()


@pytest.mark.parametrize(
    "data", [b"plain\n", b"no line end", b"", b"EOF\nEOF_\n$HOME `x` '\n", bytes(range(256)), b"\r\n", b"x" * 600_000]
)
@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_file_through_bash_arrives_to_the_byte(tmp_path, data, mode):
    assets = Memory()
    path = tmp_path / "a dir" / "it's"
    steps = (StepPlan("put", path=str(path.parent), content={"asset": assets.tree([("it's", mode, data)])}),)
    for name, arguments in calls(play(make("oracle"), occasion((BASH,), steps, assets=assets))):
        assert name == "bash"
        subprocess.run(["bash"], input=arguments["command"].encode(), check=True)
    assert path.read_bytes() == data
    assert bool(path.stat().st_mode & 0o100) == (mode == 0o755)


def test_binary_never_goes_through_put_and_no_way_is_a_policy_fault():
    assets = Memory()
    steps = (StepPlan("put", path="/w/b", content={"asset": assets.put(b"\xff")}),)
    ((name, arguments),) = calls(play(make("oracle"), occasion((BASH, PUT), steps, assets=assets)))
    assert name == "bash" and base64.b64encode(b"\xff").decode() in arguments["command"]
    with pytest.raises(PolicyFault, match="neither the tool"):
        play(make("oracle"), occasion((SUBMIT,), steps, assets=assets))


def test_a_tree_that_leaves_its_folder_is_refused():
    assets = Memory()
    steps = (StepPlan("put", path="/w", content={"asset": assets.tree([("../etc/x", 0o644, b"")])}),)
    with pytest.raises(AssetFault, match="outside its folder"):
        play(make("oracle"), occasion(solution=steps, assets=assets))


def test_one_episode_an_exploit():
    exploits = (ExploitPlan("one", (SUBMITS,)), ExploitPlan("two", ()))
    where = occasion(exploits=exploits)
    assert make("exploit").variants(where) == ("exploit:one", "exploit:two")
    assert calls(play(make("exploit"), where, "exploit:one")) == [("submit", {})]
    assert play(make("exploit"), where, "exploit:two") == []
    assert make("exploit").variants(occasion()) == ()


def test_attack_swaps_the_python_files_of_the_solution():
    steps = (
        StepPlan("put", path="/w/a.py", content={"text": "def f(): return 1\n"}),
        StepPlan("put", path="/w/notes.txt", content={"text": "keep\n"}), SUBMITS,
    )
    found = calls(play(make("exit0"), occasion((PUT, SUBMIT), steps)))
    assert [a.get("content") for _, a in found] == ["import os; os._exit(0)\n", "keep\n", None]


def test_attack_on_a_patch_spoils_what_a_verifier_collects():
    assets = Memory()
    tree = assets.tree([
        ("src/deep/a.py", 0o644, b"def f(): return 1\n"), ("src/a.txt", 0o644, b""), ("tests/t.py", 0o644, b""),
    ])
    steps = (StepPlan("put", path="/tmp/p", content={"text": "diff\n"}), SUBMITS)
    where = occasion(
        (PUT, SUBMIT), steps, assets=assets, files=(("/workspace", tree),), collect=("/workspace/src/**",)
    )
    assert [(n, a.get("path")) for n, a in calls(play(make("exit0"), where))] == [
        ("put", "/workspace/src/deep/a.py"), ("submit", None),
    ]


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_makes_no_episode_where_there_is_no_code(attack):
    assert make(attack).variants(occasion(solution=(SUBMITS,))) == ()


def test_equals_all_returns_an_object_that_equals_everything():
    source = b'''"""Doc."""
from __future__ import annotations
class C:
    def __init__(self, n): self.n = n
    def get(self): return self.n
    async def later(self): return 1
def f(a, b=2):
    yield a
'''
    code = equals_all(source).decode() + (
        "assert f(1) == 7 and f(1) == 'x' and not f(1) != [] and f(1).strip() == 3 and f(1) + 1 == 0\n"
        "assert C(5).n == 5 and C(5).get() == 9 and __doc__ == 'Doc.'\nprint('ran')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "ran\n", done.stderr


SCRIPT = b"class C:\n    def __len__(self): return 1\nprint(sum(map(int, input().split())))\n"


@pytest.mark.parametrize("source", [b"def f(:\n", b"\xff\xfe", b"a\0b", SCRIPT])
def test_equals_all_leaves_what_is_no_python_or_has_no_function(source):
    assert equals_all(source) == source


def test_a_script_that_would_still_do_its_work_is_no_attack():
    steps = (StepPlan("put", path="/w/a.py", content={"text": SCRIPT.decode()}), SUBMITS)
    assert make("equals_all").variants(occasion((PUT, SUBMIT), steps)) == ()
    assert make("exit0").variants(occasion((PUT, SUBMIT), steps)) == ("exit0",)


def test_script(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "turns: [{say: hi}]\n"
        "rows: {t/r: [{calls: [{tool: bash, arguments: {command: ls}}, {tool: bash, arguments: '{broken'}]}]}\n"
    )
    policy = make("scripted", {"script": str(path)})
    (turn,) = play(policy, occasion())
    assert [c.arguments for c in turn.message.calls] == ['{"command": "ls"}', "{broken"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "another shape"), ("turn: []", "another shape"), ("turns: 3", "must be a list"),
        ("turns: [{sy: a}]", r"turns\[0\] must have"), ("turns: [{calls: [{too: a}]}]", r"calls\[0\] must have"),
        ("turns: [{say: 3}]", "must be text"), ("a: [", "cannot be read"), ("rows: []", "must be a mapping"),
    ],
)
def test_a_wrong_script_is_told_with_its_place(tmp_path, text, says):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(PolicyFault, match=says):
        load_script(path)


def test_table_names():
    with pytest.raises(PolicyFault, match="did you mean oracle"):
        make("oracel")
    with pytest.raises(PolicyFault, match="policy.script"):
        make("scripted")
    with pytest.raises(PolicyFault, match="policy.base_url"):
        make("openai")
    for name in set(POLICIES) - {"scripted", "openai"}:
        assert make(name).name == name
