"""The report of a run folder: which episodes it shows, beside a writer and after a crash; the command; long runs."""

import json
import re
from fractions import Fraction

import pytest

from guerdon.runtime.cli.main import main
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
    Verdict,
)
from guerdon.runtime.loop.training.reporting import ROWS, refresh, report
from guerdon.runtime.report.charts import COLUMNS, DOTS, lines
from guerdon.runtime.report.trajectories import SHOWN, TURNS, Sample, trajectories
from guerdon.runtime.store.journal import FILE, FileJournal

HOSTILE = "</pre><script>alert(1)</script><b onmouseover='x' \u202e\x1b[2J"


def sealed(row="r0", step=0, outcome=Outcome.FAIL, sample=0, said="I think so", call=None, turns=1, signals=None):
    message = Message("assistant", said, (call,) if call else ())
    steps = tuple(Step(Turn(message, (HOSTILE,)), (Message("tool", f"seen {i}"),), 0.1) for i in range(turns))
    spec = EpisodeSpec("sha256:0", "task", row, sample, 1, f"eval@{step}")
    prompt = (Message("user", f"prompt of {row}"),)
    trajectory = Trajectory(spec, prompt, steps, Counters(), "42", "sha256:1", (HOSTILE,))
    reward = None if outcome is Outcome.INVALID else Reward("9/10", 0.9, {"outcome": "19/20", HOSTILE: "-1/20"}, True)
    verdicts = {HOSTILE: Verdict(outcome, signals or {"score": Fraction(1, 3)}, HOSTILE)}
    return Sealed(trajectory, outcome, verdicts, reward, "because")


@pytest.fixture
def run(tmp_path):
    out = tmp_path / "run"
    for step, outcome in ((0, Outcome.FAIL), (5, Outcome.FAIL), (10, Outcome.PASS)):
        folder = out / "rollouts" / f"eval-{step:06d}"
        with FileJournal(folder) as journal:
            for row in range(ROWS + 3, -1, -1):
                for sample in (1, 0):
                    journal.seal(sealed(f"r{row}", step, outcome, sample, f"said after {step} by {sample}"))
    (out / "metrics.jsonl").write_text('{"step": 0, "kind": "eval", "episodes": 8.0, "solve_rate": 0.5}\n')
    return out


def rows(text):
    return re.findall(r"<summary><code>(\w+)</code>", text)


def test_the_first_rows_of_the_first_and_the_last_evaluation(run):
    text = report(run).read_text()
    assert rows(text) == [f"r{i}" for i in range(ROWS)]
    assert text.count("<h3>after 0 updates") == text.count("<h3>after 10 updates") == ROWS
    assert "after 5 by" not in text and "by 1" not in text  # one episode a row, of the ends alone
    assert text.count("prompt of r0") == 1 and text.count("<details open>") == 1
    left, right = (text.index(f"said after {step} by 0") for step in (0, 10))
    assert left < right < text.index("<code>r1</code>")


def test_it_is_read_beside_a_writer_and_mends_nothing(run):
    path = run / "rollouts" / "eval-000010" / FILE
    with FileJournal(path.parent):
        before = report(run).read_bytes()
        with path.open("ab") as file:
            file.write(b'{"sealed":{"half')
        held = path.read_bytes()
        text = report(run).read_text()
        assert path.read_bytes() == held and rows(text) == rows(before.decode())
        assert "eval-000010 holds 1 line that cannot be read" in text


def test_an_episode_that_was_run_again_counts_as_it_last_was(run):
    with FileJournal(run / "rollouts" / "eval-000020") as journal:
        journal.seal(sealed("r0", 20, Outcome.INVALID, said="a fault"))
        journal.seal(sealed("r0", 20, Outcome.PASS, said="again"))
    text = report(run).read_text()
    assert "again" in text and "a fault" not in text


@pytest.mark.parametrize("spoil", ["version", "folder", "names"])
def test_what_cannot_be_read_is_said_and_ends_nothing(run, spoil):
    path = run / "rollouts" / "eval-000010" / FILE
    if spoil == "version":
        import hashlib

        body = b'{"format":"guerdon.trajectory/99"}'
        path.write_bytes(b'{"sealed":%s,"sha256":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode()))
    elif spoil == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.parent.rename(path.parent.with_name("eval-<i>next"))
    told = []
    refresh(run, told.append)
    text = (run / "report.html").read_text()
    assert not told and "<i>next" not in text and rows(text) == [f"r{i}" for i in range(ROWS)]
    assert {"version": "another version", "folder": "directory", "names": "&lt;i&gt;next"}[spoil] in text


def test_a_page_that_cannot_be_written_is_told_of(run):
    (run / "report.html").mkdir()
    told = []
    refresh(run, told.append)
    assert len(told) == 1 and "guerdon report" in told[0]


def test_the_command(run, capsys, tmp_path):
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert main(["report", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "no folder of a training run" in said and said.count("\n") == 1
    assert main(["report"]) == 2 and main(["report", "--help"]) == 0


@pytest.mark.parametrize("arguments", [json.dumps({HOSTILE: HOSTILE, "n": [1, {"a": None}]}), HOSTILE, "[" * 5000, "7"])
def test_whatever_an_agent_wrote_stays_text(arguments):
    call = ToolCall(HOSTILE, HOSTILE, arguments)
    text = trajectories([Sample(HOSTILE, sealed(HOSTILE, said=HOSTILE, call=call, signals={HOSTILE: HOSTILE}))])
    assert set(re.findall(r"<[^>]*>", text)) <= {
        *("<details open>", "<summary>", "</summary>", "<code>", "</code>", "<section>", "</section>", "</details>"),
        *("<div class=sides>", "<div class=said>", "<div class=role>", "<div>", "</div>", "<pre>", "</pre>", "<h3>"),
        *("</h3>", "<b>", "</b>", "<b class=fail>", "<span class=sub>", "</span>", "<i>", "</i>", "<table>"),
        *("</table>", "<tr>", "</tr>", "<th>", "</th>", "<td>", "</td>", "<p class=note>", "</p>"),
    }
    assert "\x1b" not in text and "\u202e" not in text and "alert(1)" in text


def test_long_texts_and_long_episodes_are_cut():
    text = trajectories([Sample("now", sealed(said="y" * (SHOWN + 7), turns=TURNS + 2))])
    assert "y" * SHOWN in text and "y" * (SHOWN + 1) not in text and "… 7 more characters" in text
    assert f"seen {TURNS - 1}" in text and f"seen {TURNS}" not in text and "2 more turns" in text


def test_long_runs_stay_small_and_keep_their_peaks():
    points = [(float(i), 1.0) for i in range(50_000)]
    points[31_234] = (31_234.0, 77.0)
    points[12_345] = (12_345.0, -55.0)
    text = lines("long", {"loss": points})
    drawn = re.search(r'points="([^"]*)"', text)[1].split()
    assert len(drawn) <= 2 * COLUMNS and text.count("<circle") <= DOTS and len(text) < 40_000
    heights = [float(pair.split(",")[1]) for pair in drawn]
    assert heights.count(max(heights)) == heights.count(min(heights)) == 1


def test_numbers_out_of_all_bounds_draw_nothing_and_stop_nothing(run):
    wild = [{"step": 1, "kind": "train", "loss": 1e308, "kl": -1e308, "entropy": 0.5},
            {"step": 10**400, "kind": "train"}, {"step": True, "kind": 7},
            {"step": 2, "kind": "train", "loss": 10**400}, [], {"step": 1.5, "kind": "eval"},
            {"step": 1, "kind": "eval", "solve_rate": 7.0, "episodes": -3.0}]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(one) + "\n" for one in wild) + '{"step": 3, "kind": "train", "loss": NaN}\n')
    text = report(run).read_text()
    assert "policy, step 1: 0.5" in text and "nan" not in re.sub(r"<style>.*?</style>", "", text).lower()
    assert "e+3" not in text
