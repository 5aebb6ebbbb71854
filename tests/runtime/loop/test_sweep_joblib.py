"""Sweeps side by side: jobs in processes of their own, that fail, stop and are counted as those of this one are."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from guerdon.runtime.cli.loading import load
from guerdon.runtime.cli.trouble import provider
from guerdon.runtime.loop.app import run_app
from guerdon.runtime.loop.board import FAILED, STOP, began
from guerdon.runtime.loop.run import DONE

pytest.importorskip("hydra_plugins.hydra_joblib_launcher")

PACK = """edition 1
import "std/task" (submit)
dataset sums = jsonl("sums.jsonl") {
  key = id
  schema { id: string; value: string secret; guess: string }
  split(seed = 1) { train = 0.5; eval = 0.5 }
}
verifier right(value: string) = answer { expected = value; from = submit; compare = number }
reward adding(result: answer) {
  solved = result.passed
  term outcome 1.0 = solved
  term clumsy -0.1 = min(trajectory.malformed_calls, 4) / 4
}
task add for row in sums {
  prompt = "${row.id}"
  tools  = [submit]
  limits { turns = 2; tokens = 200; wall = 1min }
  verify { result = right(row.value) }
  reward = adding(result)
  solution { call submit(row.value) }
  exploit "guesses" { call submit(row.guess) }
}
"""
SIDE_BY_SIDE = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
SHELL = PACK.replace("(submit)", "(plain, bash, submit)").replace("tools  = [submit]", """tools = [bash, submit]
  environment = desk""").replace("solution {", 'solution { call bash("sleep 0.2");').replace("verifier", """
environment desk {
  image = plain; workdir = "/work"
  resources { cpu = 1; memory = 64MiB; disk = 8MiB; pids = 32 }
}
verifier""", 1)


@pytest.fixture
def pack(tmp_path):
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "sums.task").write_text(PACK)
    rows = "".join(f'{{"id": "r{n}", "value": "{n}", "guess": "{n + 1}"}}\n' for n in range(8))
    (folder / "sums.jsonl").write_text(rows)
    return folder


def call(pack, *words, word="run"):
    """The exit status, and what this process said; the jobs' own processes write to file descriptor 2."""
    said = io.StringIO()
    console = Console(file=said, width=300)
    code = run_app(str(pack), [*words, f"store.runs={pack.parent / 'runs'}"], load, provider, console, word=word)
    return code, said.getvalue()


def test_jobs_are_done_judged_and_summed_up_in_processes_of_their_own(pack, tmp_path, capfd):
    runs = tmp_path / "runs"
    assert call(pack, "policy=oracle", "seed=1")[0] == 0
    (first,) = runs.iterdir()
    (first / DONE).unlink()
    (first / "plan.digest").write_text("sha256:another\n")
    # An `eval`, since what comes after a job is done where the job is.
    code, _ = call(pack, *SIDE_BY_SIDE, "policy=oracle", "seed=1,2", "reward.outcome=0.5,1.0", word="eval")
    said = capfd.readouterr().err
    assert code == 1, said
    (line,) = [one for one in said.splitlines() if one.startswith("error: ")]
    assert "seed=1" in line and "reward.outcome=1.0" in line and str(first) in line and "sha256:another" in line
    assert "Traceback" not in said and "Error executing" not in said
    done = sorted(one.parent for one in runs.glob(f"*/{DONE}"))
    assert len(done) == 3 and first not in done and all((one / "eval.json").is_file() for one in done)
    assert len({(one / "plan.digest").read_text() for one in done}) == 2
    (first / "plan.digest").unlink()
    code, _ = call(pack, *SIDE_BY_SIDE, "policy=oracle", "seed=1,2", "reward.outcome=0.5,1.0", word="eval")
    said = capfd.readouterr().err
    assert code == 0 and said.count("done already") == 3 and (first / DONE).exists(), said
    ended = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "popen_loky"], capture_output=True, check=False)
    assert ended.stdout == b""


@pytest.mark.parametrize(
    ("words", "says"),
    [(["hydra/launcher=jobib"], "no launcher 'jobib'; did you mean 'joblib'?"),
     (["hydra/launcher=joblib,basic"], "cannot be swept"),
     (["hydra/launcher=joblib", "hydra.launcher.n_jobs=0"], "n_jobs is '0'; give a number"),
     (["hydra/launcher=joblib", "hydra.launcher.n_jobs=1,2"], "n_jobs is '1,2'; give a number"),
     (["hydra/launcher=joblib", "hydra.launcher.n_jobs=5000"], "n_jobs is '5000'; give a number"),
     (["hydra.launcher.n_jobs=2"], "n_jobs goes with hydra/launcher=joblib"),
     (["hydra/launcher=joblib", "hydra.launcher.njobs=2"], "njobs cannot be set"),
     (["hydra/launcher=joblib", "hydra.launcher.timeout=1"], "timeout cannot be set"),
     (["--cfg", "job"], "--cfg shows one job"), (["--info", "defaults"], "--info shows one job"),
     (["hydra.job.chdir=true"], "hydra.job.chdir cannot be set"), (["--config-dir=x"], "no flag --config-dir"),
     (["--resolve"], "goes with --cfg"), (["policy=openai"], "policy.base_url must be given"),
     (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "sandbox.retries=1,2"], "are the same run"),
     (["seed=range(5,5)"], "the sweep has no job"), (["~seed"], "would take a setting away"),
     (["sandbox.retreis=1"], "did you mean 'sandbox.retries'")],
)
def test_what_cannot_be_launched_is_refused_in_a_line(pack, tmp_path, words, says):
    code, said = call(pack, "-m", "policy=oracle", *words)
    assert code == 2 and said.startswith("error: ") and says in said and said.count("\n") == 1, said
    assert not (tmp_path / "runs").exists()


def test_a_sweep_of_one_job_stays_in_this_process(pack, tmp_path):
    code, said = call(pack, *SIDE_BY_SIDE, "policy=oracle")
    assert code == 0 and "results: " in said and len(list((tmp_path / "runs").glob(f"*/{DONE}"))) == 1, said


def test_what_hydra_shall_show_must_be_something_it_has(pack):
    for words, says in [(["--cfg", "jbo"], "did you mean 'job'?"), (["--cfg"], "give --cfg job")]:
        code, said = call(pack, "policy=oracle", *words)
        assert code == 2 and says in said and said.count("\n") == 1, said


def test_ranges_and_globs_are_sweeps_and_need_the_flag(pack, tmp_path):
    code, said = call(pack, "-m", "policy=glob(i*)", "seed=range(1,4)")
    assert code == 0 and len(list((tmp_path / "runs").glob(f"sums-idle-*/{DONE}"))) == 3, said
    code, said = call(pack, "policy=oracle", "seed=range(1,4)")
    assert code == 2 and "add -m" in said


@pytest.mark.parametrize(
    ("words", "shown"),
    [(["--help"], "guerdon run is powered"), (["policy=idle", "seed=7", "--cfg", "job"], "seed: 7"),
     (["--cfg", "job", "policy=idle", "--package", "policy"], "name: idle")],
)
def test_hydras_questions_are_answered_and_start_nothing(pack, tmp_path, capfd, words, shown):
    code, _ = call(pack, *words)
    assert code == 0 and shown in capfd.readouterr().out and not list((tmp_path / "runs").glob("sums-*"))


def test_a_pack_that_changes_under_a_sweep_is_not_run(pack, capfd):
    def changing(name, weights):
        plan = load(name, weights)
        (pack / "sums.jsonl").write_text('{"id": "r0", "value": "7", "guess": "8"}\n{"id": "r1", "value": "7", '
                                         '"guess": "8"}\n')
        return plan

    code = run_app(str(pack), [*SIDE_BY_SIDE, "policy=oracle,idle", f"store.runs={pack.parent / 'runs'}"], changing,
                   provider, Console(file=io.StringIO()))
    said = capfd.readouterr().err
    assert code == 1 and "was changed after the sweep began" in said and "results:" not in said


def test_a_signal_becomes_a_fact_and_reaches_who_is_at_a_job():
    child = ("import sys, time; from pathlib import Path; from guerdon.runtime.loop.board import *\n"
             "board = Board(Path(sys.argv[1]))\n"
             "with at_a_job(board):\n"
             "    print('at it', flush=True)\n"
             "    while not board.has(STOP): time.sleep(0.01)\n"
             "    time.sleep(0.05)\n")
    before = signal.getsignal(signal.SIGINT)
    with began() as board:
        worker = subprocess.Popen([sys.executable, "-c", child, str(board.folder)], stdout=subprocess.PIPE)
        assert worker.stdout.readline() == b"at it\n"
        os.kill(os.getpid(), signal.SIGINT)
        # Told and not torn: it ends by itself, well, although the signal was SIGTERM.
        assert worker.wait(20) == 0
        assert board.has(STOP) and not board.has(FAILED) and not list(board.folder.glob("pid-*"))
    assert signal.getsignal(signal.SIGINT) is before and not board.folder.exists()
    board.put(FAILED)  # nobody is left to be told, and that is no fault


@pytest.mark.podman
def test_two_jobs_share_one_service_and_ctrl_c_leaves_nothing(pack, tmp_path):
    runs, name = tmp_path / "runs", "sideways"
    (pack / "sums.task").rename(pack / f"{name}.task").write_text(SHELL)
    words = [sys.executable, "-m", "guerdon.runtime.cli.main", "run", str(pack), *SIDE_BY_SIDE,
             "policy=oracle", f"store.runs={runs}"]
    short = subprocess.run([*words, "seed=1,2", "first=1"], capture_output=True, text=True, timeout=120, check=False)
    assert short.returncode == 0, short.stderr
    assert len(list(runs.glob(f"{name}-*/{DONE}"))) == 2
    long = subprocess.Popen([*words, "seed=3,4", "samples=100"], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 90
        while time.monotonic() < end and sum(map(sealed, runs.glob("*/trajectories.jsonl"))) < 4:
            time.sleep(0.05)
        long.send_signal(signal.SIGINT)
        said = long.communicate(timeout=60)[1]
    finally:
        long.kill()
    assert long.returncode == 130 and "stopped; what was sealed is kept" in said, said
    assert "Traceback" not in said and len(list(runs.glob(f"*/{DONE}"))) == 2
    assert name not in sandboxes()


def sandboxes():
    return subprocess.run(
        [sys.executable, "-m", "guerdon.runtime.cli.main", "sandbox", "ls"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout


def sealed(path):
    return path.read_bytes().count(b"\n")
