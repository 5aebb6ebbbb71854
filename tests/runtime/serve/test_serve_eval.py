"""`guerdon eval policy=openai` against our server, over a pack of plain answers: what is found, kept and never kept."""

import itertools
import json
import socket
import statistics
from fractions import Fraction
from pathlib import Path

import pytest

from guerdon.runtime.cli.eval import main
from guerdon.runtime.loop.passk import Tries, pass_at_k, summary

KEY = "sk-secret-of-the-test-0123456789"
PACK = """edition 1
import "std/task" (submit)

dataset sums = jsonl("sums.jsonl") {
  key = id
  schema { id: string; ask: string; value: string secret }
  split(seed = 1) { train = 0.5; eval = 0.5 }
}
verifier right(value: string) = answer { expected = value; from = submit; compare = number }
reward scored(result: answer) {
  solved = result.passed
  term outcome 1 = solved
}
task add for row in sums {
  prompt = "${row.ask}"
  tools  = [submit]
  limits { turns = 2; tokens = 2000; wall = 1min }
  verify { result = right(row.value) }
  reward = scored(result)
}
"""


@pytest.fixture
def pack(tmp_path, monkeypatch):
    folder = tmp_path / "adding"
    folder.mkdir()
    (folder / "adding.task").write_text(PACK)
    rows = [{"id": f"r{n}", "ask": f"{n}+{n}?", "value": str(2 * n)} for n in range(12)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GUERDON_HOME", str(tmp_path / "home"))
    return folder


def evaluate(pack, url, *more):
    words = [f"policy.base_url={url}", "policy.model=toy", "policy.max_tokens=200"]
    return main([str(pack), "policy=openai", *words, *more])


def results(tmp_path):
    ((found, path),) = [(json.loads(p.read_text()), p.parent) for p in tmp_path.glob("runs/*/eval.json")]
    return found["groups"], path


@pytest.mark.parametrize("form", ["native", "hermes"])
def test_a_model_that_errs_by_its_seed(pack, tmp_path, serve, sums, capsys, form):
    sums.tools = sums.wrong = True
    with serve(sums, key=KEY) as url:
        more = ("samples=4", "policy.token_ids=true", f"policy.tool_format={form}")
        assert evaluate(pack, url, *more) == 0
        asked = len(sums.requests)
        assert evaluate(pack, url, *more, "policy.timeout=60", "policy.concurrent=1") == 0
        assert len(sums.requests) == asked  # the same run: done already
    said = capsys.readouterr().err
    groups, folder = results(tmp_path)
    episodes = [json.loads(line)["sealed"] for line in (folder / "trajectories.jsonl").read_text().splitlines()]
    tries = {}
    for one in episodes:
        spec = one["trajectory"]["episode"]
        (step,) = one["trajectory"]["steps"]
        assert (one["outcome"] == "pass") == (spec["seed"] % 2**31 % 2 == 0)
        assert step["turn"]["tokens"]["ids"] and step["turn"]["count"] == sum(step["turn"]["tokens"]["mask"])
        tries.setdefault(spec["row"], []).append(one["outcome"] == "pass")
    assert 2 <= len(tries) < 12 and all(len(outcomes) == 4 for outcomes in tries.values())  # the split `eval` alone
    whole = groups[0]
    assert (whole["split"], whole["rows"], whole["invalid"]) == ("all", len(tries), 0)
    for k in (1, 2, 4):
        each = [any_of(outcomes, k) for outcomes in tries.values()]
        found = whole["pass_at"][str(k)]
        assert found["mean"] == pytest.approx(statistics.mean(map(float, each)))
        assert found["stderr"] == pytest.approx(statistics.stdev(map(float, each)) / len(each) ** 0.5)
    assert [(g["split"], g["task"]) for g in groups] == [("all", "all"), ("eval", "all"), ("eval", "add")]
    assert f"pass@1 {whole['pass_at']['1']['mean']:.4f} ± " in said
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert KEY not in said and KEY.encode() not in kept


def any_of(outcomes, k):
    """pass@k of a row by its meaning: the share of all choices of k samples in which one passed."""
    chosen = list(itertools.combinations(outcomes, k))
    return Fraction(sum(map(any, chosen)), len(chosen))


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_choices_with_a_pass(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        assert pass_at_k(n, c, k) == any_of([True] * c + [False] * (n - c), k)


def test_invalid_episodes_are_not_counted():
    rows = {("p", "t", "a"): Tries("t", "eval", 1, 1, 2), ("p", "t", "b"): Tries("t", "", 0, 4, 0),
            ("p", "t", "c"): Tries("t", "eval", 0, 0, 4)}
    whole, bare, *_ = summary(rows)["groups"]
    assert (whole["rows"], whole["pass"], whole["fail"], whole["invalid"]) == (3, 1, 5, 6)
    assert whole["pass_at"]["1"] == {"mean": 0.25, "stderr": 0.25, "rows": 2}
    assert whole["pass_at"]["4"] == {"mean": 0.0, "stderr": None, "rows": 1}
    assert (bare["split"], bare["rows"]) == ("-", 1)
    lost = {("p", "t", "c"): Tries("t", "eval", 0, 0, 4)}
    assert summary(lost)["groups"][0]["pass_at"] == {}
    with pytest.raises(ValueError, match="pass@3"):
        pass_at_k(2, 1, 3)


def test_a_server_that_nobody_started_stops_the_run_at_once(pack, tmp_path, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert evaluate(pack, f"http://127.0.0.1:{free.getsockname()[1]}/v1") == 1
    said = capsys.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "cannot be reached" in line and "start the server" in line and "Traceback" not in said
    assert all(p.read_text() == "" for p in tmp_path.glob("runs/*/trajectories.jsonl"))


def test_a_model_that_fails_makes_invalid_episodes_and_ends_the_run(pack, tmp_path, serve, sums, capsys):
    """Eight in a row are enough; none of them is a score, and the next command runs them again."""
    async def broken(requests):
        raise RuntimeError("out of memory")

    sums.generate, working = broken, sums.generate
    with serve(sums) as url:
        assert evaluate(pack, url, "split=", "policy.retries=0", "samples=2") == 1
        said = capsys.readouterr().err
        assert "8 episodes in a row were lost" in said and "out of memory" in said
        sums.generate, sums.tools = working, True
        assert evaluate(pack, url, "split=", "policy.retries=0", "samples=2") == 0
    groups, _ = results(tmp_path)
    assert (groups[0]["rows"], groups[0]["pass"], groups[0]["invalid"]) == (12, 24, 0)


def test_a_spent_budget_ends_the_run_and_a_larger_one_goes_on(pack, tmp_path, serve, sums, capsys):
    sums.tools = True
    with serve(sums) as url:
        assert evaluate(pack, url, "split=", "policy.token_budget=300", "sandbox.concurrency=1") == 1
        assert "the token budget is spent" in capsys.readouterr().err
        before = len(sums.requests)
        assert 0 < before < 12
        assert evaluate(pack, url, "split=", "sandbox.concurrency=1") == 0
    assert len(sums.requests) == 12
    assert results(tmp_path)[0][0]["pass"] == 12


def test_help_and_refusals(pack, capsys):
    assert main(["--help"]) == 0 and "pass@k" in capsys.readouterr().out
    assert main([]) == 2
    assert main([str(pack), "policy=openai", "policy.model=toy"]) == 2
    assert "base_url" in capsys.readouterr().err
    assert evaluate(pack, "http://h/v1", f"policy.api_key_env={KEY}") == 2
    assert KEY not in capsys.readouterr().err and not list(Path().glob("runs/*/config.yaml"))
