"""Trackers: the calls that the services get, runs that are gone on with, and failures that end no training."""

import sys
import types

import pytest

from guerdon.runtime.report.trackers import TRACKERS, make_trackers


class Wandb(types.ModuleType):
    """A module that notes what it is asked for."""

    def __init__(self):
        super().__init__("wandb")
        self.calls = []
        self.init = self.noting("init", self)
        for name in ("define_metric", "log", "finish"):
            setattr(self, name, self.noting(name))

    def noting(self, name, result=None):
        return lambda *words, **given: self.calls.append((name, words, given)) or result


class Client:
    """As much of MLflow's client as is used, with runs that stay."""

    def __init__(self):
        self.experiments, self.runs, self.metrics, self.documents, self.status = {}, {}, [], {}, {}

    def get_experiment_by_name(self, name):
        return self.experiments.get(name)

    def create_experiment(self, name):
        self.experiments[name] = types.SimpleNamespace(experiment_id=str(len(self.experiments) + 7))
        return self.experiments[name].experiment_id

    def search_runs(self, experiments, filter_string, max_results):
        found = [run for run in self.runs.values() if run.experiment in experiments
                 and filter_string == f"tags.guerdon_run = '{run.tags['guerdon_run']}'"]
        return found[:max_results]

    def create_run(self, experiment, tags, run_name):
        run = types.SimpleNamespace(experiment=experiment, tags=tags, name=run_name,
                                    info=types.SimpleNamespace(run_id=f"r{len(self.runs)}"))
        self.runs[run.info.run_id] = run
        self.status[run.info.run_id] = "RUNNING"
        return run

    def update_run(self, run, status):
        self.status[run] = status

    def set_terminated(self, run):
        self.status[run] = "FINISHED"

    def log_dict(self, run, document, name):
        self.documents[run, name] = document

    def log_batch(self, run, metrics):
        self.metrics.extend((run, one.key, one.value, one.step) for one in metrics)


@pytest.fixture
def wandb(monkeypatch):
    fake = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return fake


@pytest.fixture
def mlflow(monkeypatch):
    client = Client()
    fake, entities = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities")
    fake.MlflowClient, fake.entities = lambda: client, entities
    entities.Metric = lambda key, value, timestamp, step: types.SimpleNamespace(key=key, value=value, step=step)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return client


def opened(name, folder, told, **settings):
    folder.mkdir(exist_ok=True)
    (tracker,) = make_trackers([name], folder, settings, told.append)
    return tracker


def test_wandb_gets_a_run_by_name_with_our_steps_as_its_axis(tmp_path, wandb):
    told = []
    tracker = opened("wandb", tmp_path / "run-a", told, seed=3)
    tracker.log(-2, {"warm/loss": 1.5})
    tracker.close()
    (init, words, given), axis, logged, done = wandb.calls
    assert init == "init" and words == () and not told
    assert given == {"project": "guerdon", "id": "run-a", "name": "run-a", "resume": "allow",
                     "dir": str(tmp_path / "run-a"), "config": {"seed": 3}}
    assert axis == ("define_metric", ("*",), {"step_metric": "step"})
    assert logged == ("log", ({"warm/loss": 1.5, "step": -2},), {}) and done == ("finish", (), {})


def test_ids_have_only_what_services_take_and_stay_apart(tmp_path, wandb):
    names = ["a b#c%d", "a b#c?d", "x" * 100, "x" * 101]
    for name in names:
        opened("wandb", tmp_path / name, [])
    asked = [given for call, _, given in wandb.calls if call == "init"]
    ids = [given["id"] for given in asked]
    assert len(set(ids)) == len(names) and [given["name"] for given in asked] == names
    assert all(len(one) <= 64 and not set(one) & set("/\\#?%: '") for one in ids), ids


def test_mlflow_gets_every_number_and_finds_a_run_again(tmp_path, mlflow):
    told = []
    first = opened("mlflow", tmp_path / "run-a", told, seed=3)
    first.log(1, {"train/loss": 0.5, "train/kl": 0.0})
    first.close()
    assert mlflow.status == {"r0": "FINISHED"} and mlflow.documents == {("r0", "config.json"): {"seed": 3}}
    again = opened("mlflow", tmp_path / "run-a", told, seed=3)
    assert mlflow.status == {"r0": "RUNNING"}
    again.log(2, {"train/loss": 0.25})
    other = opened("mlflow", tmp_path / "run-b", told)  # beside it, in one process
    other.log(1, {"train/loss": 9.0})
    again.close()
    assert mlflow.metrics == [("r0", "train/loss", 0.5, 1), ("r0", "train/kl", 0.0, 1), ("r0", "train/loss", 0.25, 2),
                              ("r1", "train/loss", 9.0, 1)]
    assert mlflow.status == {"r0": "FINISHED", "r1": "RUNNING"} and list(mlflow.experiments) == ["guerdon"]
    assert not told


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard"])
def test_a_missing_package_is_one_line_with_its_remedy(tmp_path, monkeypatch, name):
    told = []
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    assert make_trackers([name], tmp_path, {}, told.append) == ()
    assert len(told) == 1 and "\n" not in told[0] and f"pip install {name}" in told[0]


def test_a_service_that_refuses_is_left_out_and_the_others_stay(tmp_path, wandb, mlflow):
    def refuse(**given):
        raise RuntimeError("no key\nset   WANDB_API_KEY" + "x" * 1000)

    told = []
    wandb.init = refuse
    assert len(make_trackers(["wandb", "mlflow"], tmp_path, {}, told.append)) == 1
    assert len(told) == 1 and "no key set WANDB_API_KEY" in told[0] and "\n" not in told[0] and len(told[0]) < 300


def test_the_network_may_go_in_mid_run(tmp_path, wandb):
    def lose(values):
        raise ConnectionError("gone")

    told = []
    tracker = opened("wandb", tmp_path / "run-a", told)
    wandb.log = lose
    for step in (1, 2, 3):
        tracker.log(step, {"train/loss": 1.0})
    tracker.close()
    assert len(told) == 1 and "wandb has failed" in told[0] and "gone" in told[0] and "metrics.jsonl" in told[0]


def test_somebody_who_stops_the_run_is_heard(tmp_path, wandb):
    def stop(values):
        raise KeyboardInterrupt

    tracker = opened("wandb", tmp_path / "run-a", [])
    wandb.log = stop
    with pytest.raises(KeyboardInterrupt):
        tracker.log(1, {})


def test_the_table_is_what_the_configuration_offers():
    assert set(TRACKERS) == {"tensorboard", "wandb", "mlflow"}
