"""The pages in docs/: every example compiles, every command runs, every list is what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon.compiler import environments, tasks, verifiers
from guerdon.compiler.check import compile_pack
from guerdon.compiler.kinds import read_kind
from guerdon.compiler.pack import Pack
from guerdon.compiler.program import Loader
from guerdon.compiler.types import SCALARS, decimal
from guerdon.compiler.vocabulary import SHAPES
from guerdon.dsl import literals, pages
from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source
from guerdon.dsl.tokens import KEYWORDS

ROOT = Path(__file__).parent.parent
LANGUAGE = (ROOT / "docs/language.md").read_text("utf-8")
PACKS = (ROOT / "docs/packs.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text, start):
    return [(info, body) for info, body in FENCE.findall(text) if info.split(" ")[0] == start]


FILES = {
    "rows.jsonl": '{"id": "a", "level": 1}\n',
    "bugs.jsonl": '{"id": "a", "hint": "A price is wrong.", "level": 1}\n',
    "sums.csv": 'name,level,values,total,gold\na,1,"[1, 2]",3,notes.txt\n',
    "notes.txt": "n\n", "data/a.csv": "x\n", "lib/a.py": "", "checks/a.sh": "true\n", "gold/a.py": "x = 1\n",
    "gold.py": "x = 1\n", "shop/src/prices.py": "x = 0\n", "shop/tests/test_prices.py": "",
    "hidden_tests/a/test_prices.py": "def test_x(): assert True\n", "hidden_tests/test_main.py": "def test_x(): pass\n",
    "common.task": """edition 1
verifier right(value: string) = answer { expected = value; compare = number }
reward scored(result: answer) {
  solved = result.passed
  term outcome 1 = solved
}
""",
}
"""What the examples name."""

FRAME = {
    "edition": "edition 1\n",
    "import": 'import "std/python.task" (slim, bash, submit)\n',
    "dataset rows": 'dataset rows = jsonl("rows.jsonl") { key = id; schema { id: string; level: int in 1..5 } }\n',
    "environment box": "environment box { image = slim }\n",
    "verifier checked": 'verifier checked = exec(["make", "check"]) { collect = ["/workspace/src/**"] }\n',
    "reward shaped": "reward shaped(check: exec) {\n  solved = check.passed\n  term outcome 1 = solved\n}\n",
    "task work": """task work {
  environment = ENVIRONMENT
  prompt = "Work."
  tools  = [bash, submit]
  limits { turns = 10; tokens = 1000 }
  verify { check = checked }
  reward = shaped(check)
}
""",
}
"""What a fragment stands in; declarations that it writes itself are left out here."""


def framed(part):
    own = {name for name in FRAME if re.search(rf"^{name}\b", part, re.MULTILINE)}
    uses = 'box("a")' if re.search(r"^environment box\(", part, re.MULTILINE) else "box"
    rest = {name: text.replace("ENVIRONMENT", uses) for name, text in FRAME.items() if name not in own}
    head = "".join(rest.pop(name, "") for name in ("edition", "import"))
    return head + part + "".join(rest.values())


def compiled(folder, text):
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "pack.task").write_text(text)
    return compile_pack(folder)


EXAMPLES = [(f"language-{n}", body if info == "task" else framed(body))
            for n, (info, body) in enumerate(blocks(LANGUAGE, "task"))]
EXAMPLES += [("readme", body) for _, body in blocks(README, "task")]


@pytest.mark.parametrize("text", [pytest.param(body, id=name) for name, body in EXAMPLES])
def test_an_example_compiles(text, tmp_path):
    found = compiled(tmp_path, text)
    later = {"T702"} | ({"T701"} if re.search(r"^(kind|  service) ", text, re.MULTILINE) else set())
    assert [d.message for d in found.diagnostics if d.code not in later] == []
    assert {c.verdict for t in found.plan.tasks.values() for c in t.reward.claims} == {"proved"}


def test_blocks_are_whole_files_or_fragments():
    assert {info for info, _ in blocks(LANGUAGE, "task")} == {"task", "task part"}
    assert len(EXAMPLES) > 10


def test_a_fragment_that_is_wrong_would_be_seen(tmp_path):
    part = next(body for info, body in blocks(LANGUAGE, "task") if "weight care" in body)
    assert compiled(tmp_path, framed(part.replace("check.passed", "check.pased"))).errors == 1


# What the tables say -------------------------------------------------------------------------------


def section(title):
    """The text under a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^#{{1,3}} |\Z)", LANGUAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def kinds(tmp_path):
    (tmp_path / "a.task").write_text("edition 1\n")
    program = Loader(Pack(tmp_path), tmp_path).program(tmp_path / "a.task")
    assert program is not None
    return [read_kind(d, []) for d in program.kinds.values()]


def test_kinds_settings_and_signals_are_those_of_the_std_library(tmp_path):
    known = kinds(tmp_path)
    table = re.findall(r"^\| `(\w+)` \| (yes|no) \| (yes|no) \|$", section("Verifier kinds"), re.MULTILINE)
    assert table == [(k.name, "yes" if k.runs else "no", "yes" if k.sandbox else "no") for k in known]
    later = section("Kinds that this version does not run")
    for kind in known:
        if kind.runs:
            settings, signals = [set(re.findall(r"^\| `(\w+)`", half, re.MULTILINE))
                                 for half in section(kind.name).split("| signal |")]
            assert (settings, signals) == (set(kind.settings), set(kind.signals)), kind.name
        else:
            cells = re.search(rf"^\| `{kind.name}` \| (.*?) \| (.*?) \|", later, re.MULTILINE)
            assert cells is not None, kind.name
            settings = set(re.findall(r"`(\w+)[^`]*`", re.sub(r"`= [^`]*`", "", cells[1])))
            assert settings == set(kind.settings), kind.name
            if kind.signals:
                assert set(re.findall(r"`(\w+)`", cells[2])) == set(kind.signals), kind.name
        for name, choices in kind.choices.items():
            assert not kind.runs or all(f"`{c}`" in section(kind.name) for c in choices), (kind.name, name)


def test_signal_types_are_those_of_the_std_library(tmp_path):
    for kind in kinds(tmp_path):
        for name, written in kind.signals.items():
            if kind.runs:
                shown = f"{written} {written.direction}".strip()
                assert re.search(rf"^\| `{name}` \| `{re.escape(shown)}` \|", section(kind.name), re.MULTILINE), name


def test_every_word_of_the_language_is_there():
    for shape in SHAPES.values():
        for key in shape.keys:
            assert re.search(rf"\b{key}\b", LANGUAGE), key
    assert all(f"`{kind}`" in section("Values and types") for kind in SCALARS)
    assert all(re.search(rf"\b\d+{unit}\b", LANGUAGE) for unit in literals.UNITS)
    reserved = re.search(r"Reserved words: `([^`]*)`", LANGUAGE)
    assert reserved is not None and set(reserved[1].split()) == KEYWORDS
    assert all(escape.replace("1F600", "") in section("Text").replace("1F600", "") for escape in literals.ESCAPES)


def test_ranges_and_defaults_of_limits():
    size = {"memory": 1 << 20, "disk": 1 << 20}
    for key, kind in environments.LIMITS.items():
        row = re.search(rf"^\| `resources {{ {key} }}` \| `([\d.]+)(?:MiB)?` \| ([\d.]+?)(MiB)?\.\.([\d.]+?)(GiB)?\b",
                        LANGUAGE, re.MULTILINE)
        assert row is not None, key
        unit = size.get(key, 1)
        assert row[1] == decimal(environments.DEFAULTS[key] / unit)
        assert (row[2], row[4]) == (decimal(kind.low / unit), decimal(kind.high / (1 << 30 if unit > 1 else 1))), key
    turns, tokens, wall = tasks.LIMITS.values()
    assert f"| {turns.low}..{turns.high} |" in LANGUAGE and f"| {tokens.low}..{tokens.high} |" in LANGUAGE
    assert (wall.low, wall.high, tasks.DEFAULT_WALL_MS) == (1000, 168 * 3_600_000, 30 * 60_000)
    assert "| `30min` | 1s..168h |" in LANGUAGE
    assert verifiers.DEFAULT_WALL_MS == 60_000 and "default 60s, 1ms..24h" in LANGUAGE


def test_codes_are_the_pages():
    listed = re.findall(r"^\| (T\d{3}) \| (.*) \|$", section("Codes"), re.MULTILINE)
    assert [f"# {code}: {title}" for code, title in listed] == [pages.page(c).splitlines()[0] for c in pages.codes()]


def test_named_codes_exist():
    assert {c for text in (LANGUAGE, PACKS, README) for c in re.findall(r"\bT\d{3}\b", text)} <= set(pages.codes())


def test_strings_are_read_as_the_page_says():
    text = 'a = "${x} \\u{1F600}\\$"\nb = """\n    one\n      two\n    """\nc = r"${x}\\d"\n'
    file, found = parse(Source("t.task", text))
    assert found == () and file.items[1].value.parts == ("one\n  two\n",)
    assert file.items[0].value.parts[-1] == " \U0001f600$" and file.items[2].value.literal == "${x}\\d"


# The tutorial --------------------------------------------------------------------------------------


def guerdon(line, cwd):
    """The command line as a user calls it, in a process of its own."""
    words = line.removeprefix("guerdon ").split()
    return subprocess.run([sys.executable, "-m", "guerdon.runtime.cli.main", *words], cwd=cwd, capture_output=True,
                          text=True, timeout=300, check=False)


@pytest.fixture
def tutorial(tmp_path):
    written = [(info.split(" ")[1], body) for info, body in FENCE.findall(PACKS) if " " in info]
    assert len(written) == 3
    for name, body in written:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    return tmp_path


def test_the_tutorial_checks(tutorial):
    (_, session), = blocks(PACKS, "console")
    command, _, output = session.removeprefix("$ ").partition("\n")
    done = guerdon(command, tutorial)
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")
    assert guerdon("guerdon explain T301", tutorial).stdout.startswith("# T301: ")


@pytest.mark.podman
def test_the_tutorial_runs(tutorial):
    (_, commands), = blocks(PACKS, "sh")
    for line in commands.splitlines():
        done = guerdon(line, tutorial)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert compile_pack(tutorial / "greet").diagnostics == ()


def test_links_within_the_pages_lead_somewhere():
    anchors = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
               for h in re.findall(r"^#+ (.*)$", LANGUAGE, re.MULTILINE)}
    for page, text in (("language.md", LANGUAGE), ("packs.md", PACKS), ("../README.md", README)):
        for target in re.findall(r"\]\((?!https?:)([^)]*)\)", text):
            path, _, anchor = target.partition("#")
            file = (ROOT / "docs" / page).parent / path if path else None
            assert file is None or file.exists(), (page, target)
            assert not anchor or anchor in anchors, (page, target)
