"""Ordinary hidden tests against ordinary solutions: what packs write must work through the channel."""

from __future__ import annotations

import pytest

SOLUTION = '''
import asyncio, collections, contextlib, dataclasses, enum, os, sys
LIMIT = [1, 2]
class Broken(ValueError):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code
class Worse(Broken): pass
class Stack:
    kind = "stack"
    def __init__(self, *items): self.items = list(items)
    def push(self, item): self.items.append(item); return self
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, i): return self.items[i]
    def __setitem__(self, i, v): self.items[i] = v
    def __str__(self): return "<" + ",".join(map(str, self.items)) + ">"
    def __add__(self, other): return Stack(*self.items, *other.items)
    def __contains__(self, item): return item in self.items
    def __enter__(self): self.push("in"); return self
    def __exit__(self, kind, error, trace): self.push(kind.__name__ if kind else "out"); return True
class Deep(Stack):
    @property
    def top(self): return self.items[-1]
class Color(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
def swap(items): items.reverse(); return items
def fill(table, seen, raw): table["k"] = [1]; seen.add(3); raw += b"!"
def fail(cls="Broken"): raise globals()[cls]("bad thing", 7)
def each(function, items): return [function(i) for i in items]
def later():
    kept = []
    def remember(x): kept.append(x); return tuple(kept)
    return remember
def count(n):
    for i in range(n): yield i
def forever():
    while True: yield 1
def consume(iterator): return next(iterator), next(iterator)
async def wait(x): await asyncio.sleep(0); return x * 2
def say(text): print(text); print("oops", file=sys.stderr)
def env(name): return os.environ.get(name)
def where(): return os.getcwd()
def save(path): path.write_text("saved"); return path
def counts(text): return collections.Counter(text)
def helper(): return 1
def use(): return helper()
def choose(kind): return kind("7")
def absent(): open("/nowhere")
'''
MORE = {
    "pkg/__init__.py": "from .inner import twice\n",
    "pkg/inner.py": "def twice(x): return 2 * x\n",
    "src/deep/mod.py": "NAME = 'deep'\n",
}
HIDDEN = {
    "helpers.py": "EXPECTED = [3, 2, 1]\n",
    "conftest.py": "import pytest\n@pytest.fixture\ndef stack():\n"
                   "    import solution\n    return solution.Stack(1, 2)\n",
    "test_ok.py": '''
import asyncio, collections, importlib, os, subprocess, sys, unittest
from pathlib import Path
from unittest import mock
import pytest
import solution, pkg.inner, deep.mod
from pkg import twice
from solution import Stack, count, swap
from helpers import EXPECTED

MODULE_LEVEL = Stack(9)

def test_module(): assert solution.LIMIT == [1, 2] and twice(4) == 8 and pkg.inner.twice("ab") == "abab"
def test_src(): assert deep.mod.NAME == "deep"
def test_in_place():
    items = [1, 2, 3]
    assert swap(items) is items and items == EXPECTED
    table, seen, raw = {}, {1}, bytearray(b"a")
    solution.fill(table, seen, raw)
    assert (table, seen, raw) == ({"k": [1]}, {1, 3}, b"a!")
def test_stack(stack):
    stack.push((3, {4: None}))
    assert len(stack) == 3 and list(stack) == [1, 2, (3, {4: None})] and stack[0] == 1
    stack[0] = 5.5
    assert str(stack) == f"{stack}" == "<5.5,2,(3, {4: None})>" and stack.items[0] == 5.5
    assert stack.__contains__(2) is True
    assert isinstance(stack, Stack) and not isinstance(stack, (int, str)) and not isinstance(3, Stack)
    assert issubclass(solution.Deep, Stack) and solution.Deep(1, 4).top == 4
    assert (stack + Stack(8)).items[-1] == 8
    assert stack == stack and Stack.kind == "stack" and MODULE_LEVEL.pop() == 9
    stack.kind = "mine"
    assert stack.kind == "mine"
    with pytest.raises(AttributeError): stack.nothing
    assert not hasattr(stack, "nothing") and getattr(stack, "nothing", 3) == 3
def test_context():
    with Stack() as s: pass
    assert s.items == ["in", "out"]
    with pytest.raises(KeyError):
        with s: raise KeyError
    assert s.items[-1] == "KeyError"
def test_exceptions():
    with pytest.raises(solution.Broken, match="^bad thing$") as caught: solution.fail()
    assert caught.value.code == 7 and str(caught.value) == "bad thing" and caught.value.args == ("bad thing",)
    with pytest.raises(ValueError): solution.fail("Worse")
    with pytest.raises(solution.Broken): solution.fail("Worse")
    with pytest.raises(solution.Worse): solution.fail("Worse")
    with pytest.raises(IndexError, match="pop from empty"): Stack().pop()
    with pytest.raises(KeyError, match="'nope'"): solution.fail("nope")
    with pytest.raises(TypeError): solution.swap()
    with pytest.raises(FileNotFoundError) as missing: solution.absent()
    assert missing.value.errno == 2
def test_callbacks():
    calls = []
    assert solution.each(lambda x: calls.append(x) or x + 1, (1, 2)) == [2, 3] and calls == [1, 2]
    assert solution.each(str, [1]) == ["1"] and solution.each(len, ["ab"]) == [2]
    with pytest.raises(ZeroDivisionError): solution.each(lambda x: 1 / x, [0])
    assert solution.each(lambda x: solution.use(), [1]) == [1]
    assert solution.choose(int) == 7
    keep = solution.later()
    assert keep("a") == ("a",) and keep("b") == ("a", "b")
def test_iterators():
    assert list(count(3)) == [0, 1, 2] and sum(count(4)) == 6
    numbers = solution.forever()
    assert [next(numbers) for _ in range(3)] == [1, 1, 1]
    assert solution.consume(iter("xyz")) == ("x", "y")
    assert solution.consume(i * i for i in range(5)) == (0, 1)
    with pytest.raises(StopIteration): next(count(0))
def test_async(): assert asyncio.run(solution.wait(4)) == 8
def test_output(capsys):
    solution.say("hi")
    assert capsys.readouterr() == ("hi\\n", "oops\\n")
def test_surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("COLOUR", "red")
    assert solution.env("COLOUR") == "red"
    monkeypatch.undo()
    assert solution.env("COLOUR") is None
    monkeypatch.chdir(tmp_path)
    assert solution.where() == str(tmp_path)
    out = solution.save(tmp_path / "out.txt")
    assert out == tmp_path / "out.txt" and out.read_text() == "saved"
    (tmp_path / "sub").mkdir()
    assert solution.save(tmp_path / "sub" / "x").exists()
def test_types():
    assert solution.counts("aab") == collections.Counter(a=2, b=1)
    assert solution.Color.RED is solution.Color.RED and solution.Color.RED.value == 1
    p = solution.Point(1)
    assert (p.x, p.y) == (1, 2) and repr(p) == "Point(x=1, y=2)"
    assert p.__eq__(solution.Point(1, 2)) is True
def test_patching(monkeypatch):
    monkeypatch.setattr(solution, "helper", lambda: 41)
    assert solution.use() == 41
    monkeypatch.undo()
    assert solution.use() == 1
    with mock.patch("solution.helper", return_value=5) as fake: assert solution.use() == 5
    assert fake.call_count == 1 and solution.use() == 1
def test_reload():
    solution.LIMIT = 5
    assert solution.LIMIT == 5
    importlib.reload(solution)
    assert solution.LIMIT == [1, 2]
@pytest.mark.parametrize("f, want", [(solution.use, 1), (twice, None)], ids=["use", "twice"])
def test_param(f, want): assert want is None or f() == want
def test_program(tmp_path):
    code = ("import os, solution; status = open('/proc/self/status').read();"
            "print(os.getuid(), solution.use(), status.count('NoNewPrivs:\\\\t1'))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(os.stat(tmp_path).st_uid), "1", "1"]
    assert subprocess.run(["cat"], input="x", capture_output=True, text=True).stdout == "x"
def test_fresh_import():
    with pytest.raises(ImportError): import nowhere
    with pytest.raises(ImportError): import pkg.nowhere
class TestUnit(unittest.TestCase):
    def setUp(self): self.stack = Stack(1)
    def test_it(self):
        self.assertEqual(self.stack.items, [1])
        self.assertRaises(IndexError, lambda: Stack().pop())
        self.assertIsInstance(self.stack, Stack)
''',
}


def test_what_packs_write_works(lab):
    report = lab.verify({"solution.py": SOLUTION, **MORE}, HIDDEN)
    assert dict(report.reasons) == {}
    assert len(report.tests) == 19
    assert report.passed, report.tests


REFUSED = {
    "equal": ("Stack(1) == Stack(1)", "compare data"),
    "unequal": ("Stack(1) != 3", "compare data"),
    "reflected": ("[1] == Stack(1)", "compare data"),
    "inside": ("[Stack(1)] == [1]", "compare data"),
    "truth": ("Stack(1)", "truth"),
    "negation": ("not Stack()", "truth"),
    "contains": ("1 in Stack(1)", "`in`"),
    "member": ("Stack(1) in [1]", "compare data"),
    "order": ("Stack(1) < 5", "compare data"),
    "approx": ("Stack(1) == pytest.approx(1)", "compare data"),
    "approx reflected": ("pytest.approx(1) == Stack(1)", "compare data"),
    "derive": ("type('T', (Stack,), {}) and True", ""),
    "own object": ("solution.choose(pytest) == 1", ""),
    "hidden failure": ("[1 for _ in [0] if _swallow(lambda: Stack(1) == 1)] == []", "compare data"),
    "endless": ("sum(solution.forever()) > 0", "took more than"),
}


def test_the_candidate_never_judges(lab):
    body = ("import pytest, solution\nfrom solution import Stack\n"
            "def _swallow(f):\n  try: f()\n  except BaseException: pass\n")
    for number, (text, _) in enumerate(REFUSED.values()):
        body += f"def test_{number}(): assert {text}\n"
    report = lab.verify({"solution.py": SOLUTION}, {"test_no.py": body}, call_wall=1.0, wall=4.0)
    assert set(report.tests.values()) == {"failed"}, report.tests
    for number, (_, reason) in enumerate(REFUSED.values()):
        assert reason in report.reasons[f"test_no.py::test_{number}"]


GUARDED = {
    "test_g.py": '''
import importlib.util, os, pickle, runpy, subprocess, sys
from pathlib import Path
import pytest
HERE = Path(__file__).parent
WORK = Path.cwd()
sys.path.insert(0, str(WORK / "lib"))
import tool

def test_path(): assert tool.who() == "candidate"
def test_spec():
    spec = importlib.util.spec_from_file_location("by_path", WORK / "by_path.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.who() == "candidate"
def test_link(): assert (WORK / "link.txt").read_text() == (HERE / "expected.txt").read_text()
def test_link_folder(): assert open("folder/expected.txt").read() == (HERE / "expected.txt").read_text()
def test_expected(): assert (HERE / "expected.txt").read_text() == "secret"
def test_chmod(): os.chmod(WORK / "link.txt", 0o644)
def test_runpy(): assert runpy.run_path(str(WORK / "by_path.py"))["who"]() == "candidate"
def test_pickle(): assert pickle.loads((WORK / "data.pkl").read_bytes()) is os.getpid
def test_system(): assert os.system("true") == 0
def test_popen(): assert os.popen("id -u").read().strip() == str(os.stat(WORK / "mine").st_uid)
def test_reads_tests():
    done = subprocess.run(["cat", str(HERE / "expected.txt")], capture_output=True, text=True)
    assert done.returncode != 0 and "secret" not in done.stdout
''',
    "expected.txt": "secret",
}


def test_hidden_tests_cannot_be_led_astray(lab, tmp_path):
    who = "import os\ndef who(): return 'candidate' if os.getuid() else 'grader'\n"
    extra = "import os\nos.symlink('GRADER/tests/expected.txt', 'link.txt')\nos.symlink('GRADER/tests', 'folder')\n"
    report = lab.verify(
        {"lib/tool.py": extra.replace("GRADER", str(lab.base / "grader")) + who, "by_path.py": who, "mine": "",
         "data.pkl": "cposix\ngetpid\n."}, GUARDED, open_workdir=True)
    want = {"path": True, "spec": True, "expected": True, "popen": True, "reads_tests": True}
    assert {n.removeprefix("test_g.py::test_"): o == "passed" for n, o in report.tests.items()} == {
        **dict.fromkeys(["link", "link_folder", "chmod", "runpy", "pickle", "system"], False), **want}
    assert "Permission" in report.reasons["test_g.py::test_link"]
    assert "Permission" in report.reasons["test_g.py::test_link_folder"]
    assert (lab.base / "grader/tests/expected.txt").stat().st_mode & 0o777 == 0o600


def test_time_is_bounded_even_when_the_test_itself_hangs(lab):
    report = lab.verify({"solution.py": SOLUTION},
                        {"test_t.py": "import solution\ndef test_a():\n  while True: pass\n"
                                      + "".join(f"def test_{i}(): assert solution.use() == 1\n" for i in range(30))},
                        wall=1.5)
    assert len(report.tests) == 31
    assert "time" in report.reasons["test_t.py::test_a"]
    assert set(report.tests.values()) == {"failed"}


@pytest.mark.parametrize("solution", ["def (", "import nothing_of_the_kind", "raise RuntimeError('x')"])
def test_a_module_that_cannot_be_imported_fails(lab, solution):
    hidden = {"test_x.py": "from solution import f\ndef test_f(): assert f() == 1\n",
              "test_y.py": "def test_y(): pass\n"}
    report = lab.verify({"solution.py": solution}, hidden)
    assert report.tests["test_x.py"] == "failed"
    assert report.tests["test_y.py::test_y"] == "passed"


@pytest.mark.parametrize("name", ["main", "parent", "session"])
def test_a_solution_may_be_named_like_a_program_of_the_harness(lab, name):
    report = lab.verify({f"{name}.py": "def twice(n): return 2 * n\n"},
                        {"test_x.py": f"from {name} import twice\ndef test_twice(): assert twice(21) == 42\n"})
    assert report.passed, report.reasons
