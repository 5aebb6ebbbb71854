"""`guerdon run` as a Hydra application: what is refused, what is written, what is returned."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from guerdon.compiler.plan.canonical import digest
from guerdon.conf.policy import OPTIONS
from guerdon.runtime.cli.loading import load
from guerdon.runtime.loop import app
from guerdon.runtime.policy.table import POLICIES


async def no_sandbox():
    raise AssertionError("a pack of plain answers must not open a provider")


def reweighted(plan, weights):
    """What a compiler does with changed weights, as far as a run can tell: another plan, another digest."""
    if not weights:
        return plan
    ((name, changed),) = weights.items()
    task = plan.plan.tasks["add"]
    assert name == task.reward.name
    values = {w: (str(changed.get(w, v)), low, high) for w, (v, low, high) in task.reward.weights.items()}
    task = replace(task, reward=replace(task.reward, weights=values))
    return replace(
        plan, plan=replace(plan.plan, tasks={"add": task}), digest=digest(plan.digest.encode() + repr(values).encode())
    )


@pytest.fixture
def guerdon_run(sums, tmp_path, monkeypatch):
    """Run the command in an empty folder; gives the exit status and what was said."""
    monkeypatch.chdir(tmp_path)

    def go(*overrides, plan=sums):
        console = Console(record=True, width=200, file=io.StringIO())
        status = app.run_app("sums", overrides, lambda pack, weights: reweighted(plan, weights), no_sandbox, console)
        return status, console.export_text()

    return go


def folders(tmp_path):
    return sorted(p.name for p in (tmp_path / "runs").iterdir() if (p / "summary.json").exists())


def test_one_run_one_folder_and_nothing_beside_it(guerdon_run, tmp_path, sums):
    status, said = guerdon_run("policy=oracle")
    assert status == 0, said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs"]
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith(f"sums-oracle-{sums.digest[7:17]}-")
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock", "DONE", "config.yaml", "plan.digest", "summary.json", "trajectories.jsonl",
    ]
    assert "policy:\n  name: oracle" in (folder / "config.yaml").read_text()
    assert json.loads((folder / "summary.json").read_text())["config"]["policy"] == {"name": "oracle"}
    assert str(folder.relative_to(tmp_path)) in said


def test_the_same_command_again_says_that_it_is_done(guerdon_run, tmp_path):
    guerdon_run("policy=oracle", "sandbox.concurrency=1")
    (path,) = (tmp_path / "runs").glob("*/trajectories.jsonl")
    before = path.read_bytes()
    status, said = guerdon_run("policy=oracle", "sandbox.concurrency=2")
    assert status == 0 and "done already" in said and path.read_bytes() == before


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ((), "policy"),
        (("policy=oracel",), "oracel"),
        (("polcy=oracle",), "polcy"),
        (("policy=oracle", "smaples=3"), "smaples"),
        (("policy=oracle", "+smaples=3"), "smaples"),
        (("policy=oracle", "samples=many"), "many"),
        (("policy=oracle", "samples=0"), "it must be 1 or more"),
        (("policy=oracle", "sandbox.concurency=3"), "concurency"),
        (("policy=oracle", "sandbox.retries=-1"), "it must be 0 or more"),
        (("policy=oracle", "tasks=[ad]"), "no task 'ad'"),
        (("policy=oracle", "split=tst"), "no split 'tst'"),
        (("policy=oracle", "reward.outcom=0.5"), "outcom"),
        (("policy=oracle", "+reward.outcom=0.5"), "no weight 'outcom'"),
        (("policy=oracle", "reward.outcome=1.5"), "outside its range 0 to 1"),
        (("policy=oracle", "reward.outcome=lots"), "must be a number"),
        (("policy=oracle", "reward.outcome=nan"), "must be a number"),
        (("policy=scripted",), "script"),
        (("policy=scripted", "policy.script=nowhere.yaml"), "nowhere.yaml"),
        (("policy=oracle", "seed=["), "seed"),
        (("-m", "policy=oracle", "reward.outcome=0.5,1.5"), "outside its range"),
        (("-m", "policy=oracle,oracel"), "oracel"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(guerdon_run, tmp_path, overrides, says):
    status, said = guerdon_run(*overrides)
    assert status == 2 and said.startswith("error: ") and says in said, said
    assert "Traceback" not in said and list(tmp_path.glob("runs/*/trajectories.jsonl")) == []


def test_a_weight_is_an_override_and_exact(guerdon_run, tmp_path):
    status, said = guerdon_run("policy=oracle", "reward.outcome=0.3", "reward.effort=-1/30")
    assert status == 0, said
    (line, *_) = next((tmp_path / "runs").glob("*/trajectories.jsonl")).read_text().splitlines()
    # 3/10 - 1/30 * 1/4 = 7/24
    assert json.loads(line)["sealed"]["reward"]["total"] == str(Fraction(7, 24))


def test_a_sweep_makes_a_folder_a_job(guerdon_run, tmp_path):
    status, said = guerdon_run("-m", "policy=oracle,idle", "reward.outcome=0.5,0.8")
    assert status == 0, said
    assert [name.split("-")[1] for name in folders(tmp_path)] == ["idle", "idle", "oracle", "oracle"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs"]
    assert guerdon_run("-m", "policy=oracle,idle", "reward.outcome=0.5,0.8")[1].count("done already") == 4


def test_one_job_of_a_sweep_that_breaks_does_not_take_the_others(guerdon_run, tmp_path):
    guerdon_run("policy=oracle", "seed=1")
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "DONE").unlink()
    (folder / "plan.digest").write_text("sha256:another\n")
    status, said = guerdon_run("-m", "policy=oracle", "seed=1,2,3")
    assert status == 1 and "belongs to the plan sha256:another" in said
    assert len(folders(tmp_path)) == 3
    assert sum((tmp_path / "runs" / name / "DONE").exists() for name in folders(tmp_path)) == 2


def test_policies_of_the_configuration_are_those_of_the_table():
    assert set(OPTIONS) == set(POLICIES)
    assert all(option.name == name for name, option in OPTIONS.items())


def test_only_the_app_imports_hydra():
    code = (
        "import sys, guerdon.runtime.loop.run, guerdon.runtime.calibrate.calibrate, guerdon.runtime.loop.lock\n"
        "assert not any(m.split('.')[0] in ('hydra', 'omegaconf') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("word", "says"),
    [("policy=orcale", "no policy 'orcale'; did you mean 'oracle'"), ("policy=xyz", "there are oracle, idle"),
     ("reward.outcom=0.5", "no weight 'outcom'; did you mean 'outcome'"), ("smaples=3", "no setting 'smaples'; did")],
)
def test_a_name_that_does_not_exist_is_told_with_the_nearest(word, says):
    said = io.StringIO()
    pack = Path(__file__).parents[3] / "examples" / "shell_calc"
    words = [word] if word.startswith("policy=") else ["policy=oracle", word]
    code = app.run_app(str(pack), words, load, None, Console(file=said, width=200))
    assert code == 2 and says in said.getvalue()
