"""The page of a training run: whole, self-contained, with the right numbers, and deaf to what agents wrote."""

import json
import re
from html.parser import HTMLParser

import pytest

from guerdon.runtime.contracts.trajectory import (
    Counters,
    EpisodeSpec,
    Message,
    Outcome,
    Reward,
    Sealed,
    Step,
    ToolCall,
    Trajectory,
    Turn,
)
from guerdon.runtime.report.charts import ticks
from guerdon.runtime.report.trackers import make_trackers
from guerdon.runtime.report.training import wilson, write_report
from guerdon.runtime.report.trajectories import Sample

HOSTILE = "<script>alert(1)</script><img src=http://x/y onerror=z>\x1b[31m'\""
VOID = {"meta", "i", "line", "circle", "rect", "polyline"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.addresses, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href", "xlink:href")]

    def handle_data(self, data):
        self.words.append(data)


def sealed(outcome=Outcome.FAIL):
    call = ToolCall("call_0", "bash", json.dumps({"command": HOSTILE}))
    step = Step(Turn(Message("assistant", HOSTILE, (call,))), (Message("tool", HOSTILE, call_id="call_0"),), 0.1)
    spec = EpisodeSpec("sha256:0", "t", f"row{HOSTILE}", 0, 1, "eval@0")
    trajectory = Trajectory(spec, (Message("user", "calc 1+1"),), (step,), Counters(), None, "sha256:1")
    return Sealed(trajectory, outcome, {}, Reward("9/10", 0.9, {"outcome": "9/10"}, True), HOSTILE)


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / f"run-{'x' * 3}"
    out.mkdir()
    rows = [
        {"step": -2, "kind": "warm", "loss": 2.5}, {"step": -1, "kind": "warm", "loss": 1.5, "likelihood": 0.25},
        {"step": 0, "kind": "eval", "episodes": 300.0, "invalid_share": 0.0, "solve_rate": 0.1},
        *({"step": s, "kind": "train", "episodes": 64.0, "invalid_share": 0.25 * (s == 2), "solve_rate": s / 4,
           "reward_mean": s / 5, "reward/outcome": s / 4, "entropy": 1 / s} for s in (1, 2, 3)),
        {"step": 3, "kind": "eval", "episodes": 300.0, "invalid_share": 0.0, "solve_rate": 0.93},
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = [{"step": s, "kind": "train", "seconds/rollout": 60.0, "seconds/learn": 20.0} for s in (1, 2, 3)]
    (out / "times.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    (out / "config.yaml").write_text(f"note: {HOSTILE}\n")
    return out


def parsed(path):
    page = Page()
    page.feed(path.read_text())
    page.close()
    return page


def test_the_right_numbers_are_in_it(folder):
    words = " ".join(" ".join(parsed(write_report(folder, [Sample("after 0 updates", sealed())])).words).split())
    # 0.93 of 300: Wilson's interval by an independent calculator is 0.8955 to 0.9538.
    assert "0.930" in words and "(0.895–0.954, 300 episodes)" in words
    assert "792 verified episodes" in words and "16 invalid ones" in words and "4.0 minutes" in words
    assert "Solve rate" in words and "Seconds by stage" in words and "9/10" in words


def test_nothing_of_an_agents_becomes_markup(folder):
    path = write_report(folder, [Sample("after 0 updates", sealed(one)) for one in Outcome])
    page = parsed(path)
    assert "script" not in page.tags and "img" not in page.tags
    assert all(not re.match(r"[a-z]+:|//", one) for one in page.addresses), page.addresses
    assert "\x1b" not in path.read_text() and "alert(1)" in " ".join(page.words)


def test_the_same_files_give_the_same_bytes(folder):
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_what_is_missing_or_torn_is_said(folder):
    (folder / "times.jsonl").unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')
    words = " ".join(parsed(write_report(folder)).words)
    assert "times.jsonl is missing" in words and "metrics.jsonl holds a line that is not whole" in words
    for path in folder.iterdir():
        path.unlink()
    assert "metrics.jsonl is missing" in " ".join(parsed(write_report(folder)).words)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.7, 12.1), (0.0, 1e-9), (99.0, 100.0), (-1260.0, 30.0)])
def test_ticks_are_round_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 11 and all(low - 1e-9 <= one <= high + 1e-9 for one in found)
    steps = {round((b - a) / (high - low), 6) for a, b in zip(found, found[1:], strict=False)}
    assert len(steps) == 1


def test_wilson_by_hand():
    # Newcombe 1998, table I, method 3: 81 of 263 gives 0.2553 to 0.3662; 0 of 20 gives 0 to 0.1611.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_trackers_never_end_a_training(tmp_path, monkeypatch):
    import sys
    import types

    told = []
    calls = []

    class Run:
        def define_metric(self, *names, **given):
            pass

        def log(self, values):
            calls.append(values)
            raise ConnectionError("the network is gone")

    fake = types.ModuleType("wandb")
    fake.init = lambda **given: calls.append(given["name"]) or Run()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    trackers = make_trackers(["wandb", "mlflow"], tmp_path, {}, told.append)
    assert len(trackers) == 1 and "pip install mlflow" in told[0]
    trackers[0].log(-3, {"loss": 1.0})
    trackers[0].log(-2, {"loss": 1.0})
    trackers[0].close()
    assert calls == [tmp_path.name, {"loss": 1.0, "step": -3}] and len(told) == 2 and "network is gone" in told[1]


def test_tensorboard_holds_what_was_logged(tmp_path):
    told = []
    (tracker,) = make_trackers(["tensorboard"], tmp_path, {}, told.append)
    tracker.log(1, {"train/solve_rate": 0.5})
    tracker.log(2, {"train/solve_rate": 0.75})
    tracker.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("train/solve_rate")] == [(1, 0.5), (2, 0.75)] and not told
