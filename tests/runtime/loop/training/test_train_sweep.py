"""`guerdon train` as a Hydra application: what is refused, sweeps, failures that leave the others, reruns."""

import io
import json
import os
from dataclasses import fields

import pytest
from rich.console import Console

from guerdon.conf import algorithm
from guerdon.conf.learner import LearnerConf
from guerdon.runtime.cli.loading import load
from guerdon.runtime.credit.algorithms import ALGORITHMS
from guerdon.runtime.loop.app import run_app
from guerdon.runtime.loop.run import DONE
from guerdon.runtime.loop.training.command import TRAIN
from guerdon.runtime.loop.training.config import AlgorithmConfig
from guerdon.runtime.store.journal import take_lock

QUICK = [
    "warm_start=none", "algorithm.steps=1", "algorithm.prompts=2", "algorithm.group=2", "algorithm.max_turn_tokens=8",
    "learner=tiny", "learner.layers=1", "learner.hidden=32", "learner.ffn=32", "learner.heads=2", "learner.kv_heads=2",
    "learner.threads=1", "evaluate.rows=4", "tracker=[]",
]


@pytest.fixture
def app(room):
    """Call `guerdon train` in this process: (exit status, what was said)."""
    plan, runs, numbers, emulated = room

    async def provider():
        return emulated(numbers)

    def call(*words):
        said = io.StringIO()
        console = Console(file=said, width=300)
        pack = str(runs.parent / "look")
        code = run_app(pack, [*words, f"store.runs={runs}"], load, provider, console, command=TRAIN)
        return code, said.getvalue()

    return call


@pytest.mark.parametrize(
    ("word", "says"),
    [("algorithm=grppo", "no algorithm 'grppo'; did you mean 'grpo'"),
     ("algorithm.lrr=1", "did you mean 'algorithm.lr'"),
     ("sed=1", "no setting 'sed'; did you mean 'seed'"), ("learner=smal", "did you mean 'small'"),
     ("reward.outcom=1", "no weight 'outcom'; did you mean 'outcome'"), ("warm_start=habit", "did you mean 'habits'"),
     ("learner.tensor=2", "no multiple of tensor"), ("algorithm.group=0", "must be 1 or more"),
     ("algorithm.lr=-1", "algorithm.lr is -1"), ("algorithm.lr=nan", "algorithm.lr is nan"),
     ("split=trian", "no split"),
     ("rollout.mode=async", "lockstep only"),
     ("tracker=[tensorbord]", "tracker is 'tensorbord'; did you mean 'tensorboard'"),
     ("learner.weights=/nowhere", "which is not there"), ("learner=hf", "weights"),
     ("learner.renderer=xml", "learner.renderer is 'xml'; there are"), ("algorithm.top_p=0", "top_p is 0"),
     ("warm_start.stages=[{sources:{orcl:1.0}}]", "is 'orcl'; did you mean 'oracle'"),
     ("reward.outcome=7", "outside its range"),
     ("learner.beta2=1", "it must be below 1"), ("seed=-1", "it must be 0 or more"),
     ("algorithm=grpo,dapo", "add -m"), ("warm_start.stage=[]", "did you mean 'warm_start.stages'")],
)
def test_what_is_wrong_is_refused_before_anything_starts(app, room, word, says):
    before = set(room[1].glob("*-train-*"))
    code, said = app(*QUICK, word)
    assert code == 2 and says in said and "Traceback" not in said, said
    assert set(room[1].glob("*-train-*")) == before


def test_the_configuration_and_the_tables_are_one():
    assert set(algorithm.OPTIONS) == set(ALGORITHMS)
    for name, option in algorithm.OPTIONS.items():
        loss = ALGORITHMS[name].loss
        assert option.name == name
        assert (option.clip_low, option.clip_high) == (loss.clip_low, loss.clip_high), name
    assert {f.name for f in fields(algorithm.AlgorithmConf)} == {f.name for f in fields(AlgorithmConfig)}
    assert {"ranks", "tensor", "pipeline", "context_parallel"} <= {f.name for f in fields(LearnerConf)}


def test_a_sweep_loses_one_job_only_and_a_rerun_does_that_one(app, room):
    words = [*QUICK, "-m", "reward.outcome=0.6,0.8", "seed=1"]
    runs = room[1]
    code, said = app(*QUICK, "reward.outcome=0.6", "seed=1")
    assert code == 0, said
    (wanted,) = runs.glob("look-train-*")
    (wanted / DONE).unlink()
    handle = take_lock(wanted)  # as if another process were at it
    try:
        code, said = app(*words)
        assert code == 1 and "is writing the run" in said and str(wanted) in said, said
        done = [one for one in runs.glob("look-train-*") if (one / DONE).exists()]
        assert len(done) == 1 and not (wanted / DONE).exists()
    finally:
        os.close(handle)
    code, said = app(*words)
    assert code == 0 and said.count("done already") == 1 and (wanted / DONE).exists(), said
    summary = json.loads((done[0] / "summary.json").read_text())
    assert summary["steps"] == 1 and set(summary["solve_rate"]) == {"0", "1"}
    assert (done[0] / "report.html").is_file()
    # Other weights, another plan: what was proved of a reward was proved of its weights.
    assert len({(one / "plan.digest").read_text() for one in (wanted, done[0])}) == 2
