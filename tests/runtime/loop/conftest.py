"""Hand-made plans: one of plain answers (no sandbox), one of a shell task with hidden tests."""

from fractions import Fraction

import pytest

from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.expr import Apply, Const, Symbol
from guerdon.compiler.plan.schema import (
    EnvironmentPlan,
    ExploitPlan,
    ForbidPlan,
    ImagePlan,
    InstancePlan,
    LimitsPlan,
    Plan,
    RewardPlan,
    SignalPlan,
    StepPlan,
    TaskPlan,
    TermPlan,
    ToolPlan,
    VerifierPlan,
)
from guerdon.runtime.contracts.plan import LoadedPlan
from guerdon.runtime.store.assets import AssetStore

BOOL = SignalPlan("bool", None, None, "up")
UNIT = SignalPlan("real", "0", "1", "up")
SUBMIT = ToolPlan(
    "submit", "Hand in.",
    {"type": "object", "properties": {"answer": {"type": "string"}}, "required": [], "additionalProperties": False},
)
BASH = ToolPlan(
    "bash", "Run a command.",
    {
        "type": "object",
        "properties": {"command": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}},
        "required": ["command"], "additionalProperties": False,
    },
)


def number(condition):
    return Apply("if", (condition, Const(Fraction(1)), Const(Fraction(0))))


def weight(name):
    return Symbol("weight", (name,))


def answer_reward():
    passed = Symbol("signal", ("right", "passed"))
    share = Apply("/", (Symbol("trajectory", ("turns",)), Symbol("limit", ("turns",))))
    terms = (
        TermPlan("outcome", weight("outcome"), "4/5", "0", "1", number(passed)),
        TermPlan("effort", weight("effort"), "-1/20", "-1/10", "0", share),
    )
    total = Apply("+", (Symbol("term", ("outcome",)), Symbol("term", ("effort",))))
    weights = {"outcome": ("4/5", "0", "1"), "effort": ("-1/20", "-1/10", "0")}
    return RewardPlan("right", passed, terms, total, weights, "-1/10", "1", ())


def load(plan, rows, store):
    return LoadedPlan(plan, digest(dumps([r.row for r in rows] + [plan.pack])), store, lambda: iter(rows))


@pytest.fixture
def sums(tmp_path):
    """Three rows of sums, answered through `submit`; every row has a solution and an exploit."""

    def row(n):
        verifier = VerifierPlan(
            "right", "answer", {"expected": str(n + n), "from": "submit", "compare": "number", "close": "0"}, (), (),
            1000, {"passed": BOOL, "parsed": BOOL},
            (Apply("implies", (Symbol("signal", ("", "passed")), Symbol("signal", ("", "parsed")))),),
        )
        solution = (StepPlan("call", tool="submit", arguments={"answer": str(n + n)}),)
        exploit = ExploitPlan("guesses", (StepPlan("call", tool="submit", arguments={"answer": "-1"}),))
        return InstancePlan(
            "add", f"r{n}", "train" if n else "eval", f"{n}+{n}?", None, (), (verifier,), solution, (exploit,), {}
        )

    task = TaskPlan("add", (SUBMIT,), LimitsPlan(4, 1000, 60_000), (), (), answer_reward(), 3, {"train": 2, "eval": 1})
    plan = Plan("sums", 1, {}, {}, {"add": task}, "", (), ())
    return load(plan, [row(n) for n in range(3)], AssetStore(tmp_path / "assets"))


@pytest.fixture
def calc(tmp_path):
    """One repository with a broken `add`; hidden pytest tests, expected ids to be locked."""
    store = AssetStore(tmp_path / "assets")

    def tree(files):
        manifest = [[name, 0o644, store.put(text.encode())] for name, text in sorted(files.items())]
        return "tree-" + store.put(dumps(manifest))

    repo = tree({"src/calc.py": "def add(a, b):\n    return a - b\n", "tests/keep.py": "x = 1\n"})
    hidden = tree({
        "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\n"
                        "def test_zero():\n    assert add(0, 0) == 0\n"
    })
    good = {"text": "def add(a, b):\n    return a + b\n"}
    solution = (
        StepPlan("put", path="/workspace/src/calc.py", content=good), StepPlan("call", tool="submit", arguments={}),
    )
    exploit = ExploitPlan("touches the kept file", (
        StepPlan("call", tool="bash", arguments={"command": "echo y >> tests/keep.py"}), *solution,
    ))
    tests_passed = Symbol("signal", ("tests", "passed"))
    solved = Apply("and", (
        tests_passed, Apply("==", (Symbol("trajectory", ("violations",)), Const(Fraction(0)))),
    ))
    terms = (
        TermPlan("outcome", weight("outcome"), "9/10", "0", "1", number(solved)),
        TermPlan("gain", weight("gain"), "1/10", "0", "1/5", Symbol("signal", ("tests", "gain"))),
    )
    total = Apply("+", (Symbol("term", ("outcome",)), Symbol("term", ("gain",))))
    weights = {"outcome": ("9/10", "0", "1"), "gain": ("1/10", "0", "1/5")}
    reward = RewardPlan("fix", solved, terms, total, weights, "0", "6/5", ())
    task = TaskPlan(
        "mend", (BASH, SUBMIT), LimitsPlan(6, 4000, 60_000),
        (ForbidPlan("kept", "changed", globs=("/workspace/tests/**",)),), (), reward, 1, {},
    )

    def make(expect=None, failing=None, rows=1):
        settings = {"expect": expect, "failing_at_start": failing, "roots": ["/workspace/src"]}
        signals = {
            "passed": BOOL, "fraction": UNIT, "gain": UNIT, "failed": SignalPlan("int", "0", "100000", "down"),
        }
        verifier = VerifierPlan(
            "tests", "pytest", settings, ("/workspace/src/**",), (("/grader/tests", hidden),), 30_000, signals, ()
        )
        instances = [
            InstancePlan("mend", f"r{n}", "", "Mend add.", "repo", (), (verifier,), solution, (exploit,), {})
            for n in range(rows)
        ]
        environment = EnvironmentPlan(
            "slim", "/workspace", (("/workspace", repo),), ("/tmp",), 1000, 512 << 20, 64 << 20, 128, "none"
        )
        image = ImagePlan("debian", ("python3", "python3-pytest", "git"), "", None)
        plan = Plan("calc", 1, {"slim": image}, {"repo": environment}, {"mend": task}, "", (), ())
        return load(plan, instances, store)

    return make
