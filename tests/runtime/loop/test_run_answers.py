"""Whole runs of a pack that needs no sandbox: outcomes, resumption, selection, summary."""

import asyncio
import json
from dataclasses import replace

import pytest

from guerdon.runtime.calibrate.calibrate import calibrate, lines
from guerdon.runtime.contracts.trajectory import Outcome
from guerdon.runtime.loop.config import RunConfig, RunError, episode_seed, folder_name
from guerdon.runtime.loop.run import run
from guerdon.runtime.policy.table import make
from guerdon.runtime.report.progress import printable
from guerdon.runtime.schedule.stop import Interrupted, Stop
from guerdon.runtime.store.journal import FileJournal


def go(plan, out, policy="oracle", stop=None, **config):
    return asyncio.run(run(plan, make(policy), RunConfig(**config), out, None, stop=stop))


def entries(out):
    with FileJournal(out) as journal:
        return list(journal.scan())


def test_oracle_passes_and_the_folder_says_so(sums, tmp_path):
    out = tmp_path / "run"
    summary = go(sums, out, samples=2)
    assert (summary.total.passed, summary.total.failed, summary.total.invalid) == (6, 0, 0)
    assert summary.total.mean == 0.7875
    found = json.loads((out / "summary.json").read_text())
    assert found["total"] == {"pass": 6, "fail": 0, "invalid": 0, "mean_reward": 0.7875}
    assert found["plan"] == sums.digest and found["complete"] and found["ran"] == 6
    assert sorted(p.name for p in out.iterdir()) == [
        ".lock", "DONE", "plan.digest", "summary.json", "trajectories.jsonl",
    ]
    first = entries(out)[0]
    assert first.trajectory.answer == "0" and first.trajectory.counters.submitted
    assert [(c.name, c.arguments) for c in first.trajectory.steps[0].turn.message.calls] == [
        ("submit", '{"answer": "0"}')
    ]
    assert first.reward.terms == {"outcome": "4/5", "effort": "-1/80"}


@pytest.mark.parametrize(
    ("policy", "turns", "total"),
    [("idle", 0, "0"), ("refusal", 1, "-1/80"), ("quit", 1, "-1/80"), ("exploit", 1, "-1/80")],
)
def test_the_others_fail(sums, tmp_path, policy, turns, total):
    go(sums, tmp_path / "run", policy)
    found = entries(tmp_path / "run")
    assert [(s.outcome, s.reward.total, s.trajectory.counters.turns) for s in found] == [
        (Outcome.FAIL, total, turns)
    ] * 3


def test_running_again_runs_nothing_and_more_samples_run_only_those(sums, tmp_path):
    go(sums, tmp_path / "run")
    before = entries(tmp_path / "run")
    assert go(sums, tmp_path / "run").ran == 0
    assert go(sums, tmp_path / "run", samples=2).ran == 3
    assert entries(tmp_path / "run")[:3] == before


def test_a_stop_keeps_what_is_sealed_and_the_next_run_goes_on(sums, tmp_path):
    class Watch:
        def __init__(self, stop):
            self.stop = stop

        def begin(self, title, total, sealed):
            pass

        def note(self, text):
            pass

        def episode(self, sealed):
            self.stop.request()

    async def stopped():
        stop = Stop()
        await run(sums, make("oracle"), RunConfig(concurrency=1, samples=50), tmp_path / "run", None,
                  watcher=Watch(stop), stop=stop)

    with pytest.raises(Interrupted):
        asyncio.run(stopped())
    kept = len(entries(tmp_path / "run"))
    assert 1 <= kept < 150
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not found["complete"] and found["total"]["pass"] == kept
    assert not (tmp_path / "run" / "DONE").exists()
    assert go(sums, tmp_path / "run", samples=50).ran == 150 - kept


@pytest.mark.parametrize(
    ("config", "rows"),
    [({"split": "train"}, ["r1", "r2"]), ({"rows": ("r2", "r0")}, ["r0", "r2"]), ({"first": 1}, ["r0"]),
     ({"split": "train", "first": 1}, ["r1"]), ({"tasks": ("add",)}, ["r0", "r1", "r2"])],
)
def test_selection(sums, tmp_path, config, rows):
    go(sums, tmp_path / "run", concurrency=1, **config)
    assert [s.trajectory.episode.row for s in entries(tmp_path / "run")] == rows


@pytest.mark.parametrize(
    ("config", "says"),
    [({"tasks": ("ad",)}, "no task 'ad'; it has add"), ({"split": "test"}, "no split 'test'; it has eval, train")],
)
def test_what_the_plan_does_not_have_is_refused_before_anything_is_written(sums, tmp_path, config, says):
    with pytest.raises(RunError, match=says):
        go(sums, tmp_path / "run", **config)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_plan_is_refused(sums, tmp_path):
    go(sums, tmp_path / "run")
    with pytest.raises(RunError, match="belongs to the plan"):
        go(replace(sums, digest="sha256:other"), tmp_path / "run")


def test_nothing_to_do_is_said(sums, tmp_path):
    assert "nothing to do on any of the 3" in go(sums, tmp_path / "a", "exit0").notes[0]


def test_a_row_that_does_not_exist_is_refused(sums, tmp_path):
    with pytest.raises(RunError, match=r"has no row 'r9'; its rows begin with r0"):
        go(sums, tmp_path / "run", rows=("r9",))


def test_an_unknown_kind_is_invalid_and_not_a_score(sums, tmp_path):
    row = next(sums.instances())
    broken = replace(row, verify=(replace(row.verify[0], kind="astrology"),))
    summary = go(replace(sums, instances=lambda: iter([broken])), tmp_path / "run")
    assert summary.total.invalid == 1 and summary.total.mean is None
    assert not (tmp_path / "run" / "DONE").exists()
    assert go(sums, tmp_path / "run", rows=("r0",)).total.passed == 1


def test_a_row_that_is_not_locked_is_refused(calc, tmp_path):
    with pytest.raises(RunError, match="mend/r0 is not locked.*guerdon lock"):
        go(calc("locked"), tmp_path / "run")
    with pytest.raises(RunError, match="guerdon lock"):
        asyncio.run(calibrate(calc("locked"), None, tmp_path / "runs"))


def test_seeds_depend_on_the_episode_alone():
    seeds = {episode_seed(0, "t", row, n) for row in ("a", "b") for n in range(50)}
    assert len(seeds) == 100 and all(0 <= s < 2**63 for s in seeds)
    assert episode_seed(0, "t", "a", 1) != episode_seed(1, "t", "a", 1)


def test_the_folder_is_named_by_what_decides_results():
    def name(**config):
        return folder_name("p/q", "oracle", "sha256:0123456789ab", RunConfig(**config), {})

    assert name() == name(concurrency=7, retries=0)
    assert len({name(), name(seed=1), name(samples=2), name(split="eval")}) == 4
    assert name().startswith("p_q-oracle-0123456789-")


def test_calibration_holds_and_is_written(sums, tmp_path):
    result = asyncio.run(calibrate(sums, None, tmp_path / "runs"))
    assert result.status == 0 and result.missed == []
    assert set(result.outcomes) == {("add", p) for p in ("oracle", "idle", "refusal", "quit", "exploit:guesses")}
    assert any("exit0" in gap for gap in result.gaps)
    assert json.loads((tmp_path / "runs" / "sums-calibration.json").read_text())["ok"]


def test_calibration_finds_an_exploit_that_pays_and_a_solution_that_fails(sums, tmp_path):
    first, second, third = sums.instances()
    pays = replace(second, exploits=(replace(second.exploits[0], steps=second.solution),))
    fails = replace(third, solution=third.exploits[0].steps)
    wrong = replace(sums, instances=lambda: iter([first, pays, fails]))
    result = asyncio.run(calibrate(wrong, None, tmp_path / "runs"))
    assert result.status == 1
    assert [(m.row, m.policy, m.outcome) for m in result.missed] == [
        ("r2", "oracle", Outcome.FAIL), ("r1", "exploit:guesses", Outcome.PASS),
    ]
    assert "it earned 63/80" in str(result.missed[1])
    assert [line.split()[-1] for line in lines(result.to_json())[1:]] == ["MISSED", "ok", "ok", "ok", "MISSED"]


def test_a_pack_without_solutions_is_not_calibrated(sums, tmp_path):
    bare = replace(sums, instances=lambda: (replace(row, solution=()) for row in sums.instances()))
    result = asyncio.run(calibrate(bare, None, tmp_path / "runs"))
    assert result.status == 1 and any("no row has a solution" in gap for gap in result.gaps)


def test_terminal_escapes_are_spelled_out():
    assert printable("a\x1b[2Jb\n") == "a\\x1b[2Jb\n"
