"""A training at small size: rewards teach, dealt-out rewards do not, a lying tool undoes it, a crash costs nothing."""

import asyncio
import json
import shutil
from dataclasses import replace
from itertools import chain

import pytest

from guerdon.runtime.agent.compact import CompactRenderer
from guerdon.runtime.contracts.learner import LossConfig, Row
from guerdon.runtime.contracts.trajectory import Outcome
from guerdon.runtime.credit.advantages import advantages, permuted
from guerdon.runtime.learner.ranks import Ranks
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape
from guerdon.runtime.loop.run import DONE
from guerdon.runtime.loop.training.config import (
    AlgorithmConfig,
    CheckpointConfig,
    EvaluateConfig,
    StageConfig,
    TrainConfig,
)
from guerdon.runtime.loop.training.rows import demonstration, row
from guerdon.runtime.loop.training.train import Place, evaluate_checkpoint, train
from guerdon.runtime.loop.training.update import grouped
from guerdon.runtime.store.journal import FileJournal

STEPS = 2
CONFIG = TrainConfig(
    seed=1,
    algorithm=AlgorithmConfig(
        name="grpo", steps=STEPS, prompts=16, group=8, lr=1e-3, warmup_steps=2, max_turn_tokens=24
    ),
    learner=LearnerConfig(
        model=ModelShape(
            layers=2, hidden=64, ffn=128, heads=4, kv_heads=4, head_dim=16, context=160, rope_base=1000.0
        ),
        seed=1, threads=1,
    ),
    warm_start=(
        StageConfig({"oracle": 1.0}, episodes=64, steps=300, batch=32, lr=3e-3, decay=False, until=0.9),
        StageConfig({"oracle": 0.3, "exploit": 0.7}, episodes=60, steps=30, batch=32, lr=1e-3, decay=False),
    ),
    evaluate=EvaluateConfig(every=0, rows=16, samples=4),
    checkpoint=CheckpointConfig(every=1, keep=2),
)


def place(room, name, cfg=CONFIG, off_by=0, **more):
    plan, runs, numbers, emulated = room
    return Place(plan, cfg, runs / name, emulated(numbers, off_by), CompactRenderer(), **more)


@pytest.fixture(scope="module")
def plain(room):
    return asyncio.run(train(place(room, "plain")))


def rates(room, name):
    lines = [json.loads(line) for line in (room[1] / name / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["solve_rate"] for line in lines if line["kind"] == "eval"}


def test_rewards_teach(room, plain):
    found = rates(room, "plain")
    assert found[0] < 0.4 and found[STEPS] > 0.7, found
    assert plain["solve_rate"] == {str(step): rate for step, rate in found.items()}
    assert plain["invalid"] == 0 and (room[1] / "plain" / DONE).exists()


async def pulled(model, start, rows, solved):
    """How far one update from the start moves solved episodes above the others: nats of log-probability."""
    await model.load(start)
    before = [sum(one) for one in await model.logprobs(rows)]
    await model.train_step(rows, LossConfig("grpo"), 1e-4)
    gained = [sum(one) - old for one, old in zip(await model.logprobs(rows), before, strict=True)]
    up = [gain for gain, good in zip(gained, solved, strict=True) if good]
    down = [gain for gain, good in zip(gained, solved, strict=True) if not good]
    return sum(up) / len(up) - sum(down) / len(down)


def test_advantages_that_are_dealt_out_teach_nothing(room, plain):
    """One update from the same start on the same episodes: the rewards' own advantages, and sixteen deals of them."""
    with FileJournal(room[1] / "plain" / "rollouts" / "train-000001") as journal:
        found = {(one.trajectory.episode.row, one.trajectory.episode.sample): one for one in journal.latest()}
    episodes = [found[key] for key in sorted(found)]
    groups = grouped(episodes, CONFIG.algorithm.group)
    own = advantages("normalised", groups)
    solved = [one.outcome is Outcome.PASS for one in episodes]

    async def go():
        model = await Ranks.start(CONFIG.learner)
        try:
            moved = []
            for given in [own, *(permuted(own, groups, seed) for seed in range(16))]:
                rows = [row(one, a) for one, a in zip(episodes, chain.from_iterable(given.values), strict=True)]
                moved.append(await pulled(model, room[1] / "plain" / "checkpoints" / "step-000000", rows, solved))
            return moved
        finally:
            await model.close()

    real, *dealt = asyncio.run(go())
    assert real > 0.1, real
    # A deal may pull either way; together they pull nowhere.
    assert abs(sum(dealt)) / len(dealt) < real / 2 and max(dealt) < real and min(dealt) < 0, (real, dealt)


def test_a_tool_that_lies_undoes_it(room, plain):
    """What was learnt is to read the tool's output, not the answers: no other policy fails on every number."""
    last = room[1] / "plain" / "checkpoints" / f"step-{STEPS:06d}"
    found = asyncio.run(evaluate_checkpoint(place(room, "lied-to", off_by=1), last))
    assert found["solve_rate"] < 0.05 and found["invalid_share"] == 0.0, found


class Crash(Exception):
    pass


class Crashing:
    """A watcher that ends the process's work, so to say, in the middle of a step."""

    def __init__(self, title):
        self.title, self.begun = title, 0

    def begin(self, title, total, sealed):
        self.begun = title

    def episode(self, sealed):
        if self.begun == self.title:
            raise Crash

    def note(self, text):
        pass


def test_a_crash_in_mid_step_leaves_no_trace(room, plain):
    with pytest.raises(Crash):
        asyncio.run(train(place(room, "crashed", watcher=Crashing(f"step 2 of {STEPS}"))))
    assert not (room[1] / "crashed" / DONE).exists()
    # A torn line and a half checkpoint, as a power cut would leave them.
    with (room[1] / "crashed" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "ki')
    shutil.copytree(room[1] / "crashed/checkpoints/step-000001", room[1] / "crashed/checkpoints/.step-000002.partial")
    asyncio.run(train(place(room, "crashed")))
    assert (room[1] / "crashed" / "metrics.jsonl").read_bytes() == (room[1] / "plain" / "metrics.jsonl").read_bytes()


def test_what_is_learnt_from_is_what_was_sampled(room, plain):
    with FileJournal(room[1] / "plain" / "rollouts" / "train-000001") as journal:
        episodes = list(journal.latest())
    assert len(episodes) == 128
    for one in episodes:
        made = row(one, 0.5)
        turns = [step.turn.tokens for step in one.trajectory.steps]
        assert made.ids == tuple(i for t in turns for i in t.ids)
        assert made.mask == tuple(m for t in turns for m in t.mask) and not made.mask[0]
        assert {a for a, m in zip(made.advantages, made.mask, strict=True) if m} == {0.5}
        assert not any(a or lp for a, lp, m in zip(made.advantages, made.logprobs, made.mask, strict=True) if not m)
        lost = row(replace(one, outcome=Outcome.INVALID), 0.5)
        assert lost.ids == made.ids and not any(lost.mask) and not any(lost.advantages)


def test_a_demonstration_is_what_the_policy_would_have_sampled(room, plain):
    (folder,) = room[1].glob("look-oracle-*")
    with FileJournal(folder) as journal:
        one = next(iter(journal.latest()))
    made = demonstration(one, CompactRenderer(), room[0].plan.tasks["look"].tools)
    n = room[2][one.trajectory.episode.row]
    seen = f"{n}\n[exit code 0]".encode()
    wanted = [257, *b"n?", 260, 258], [*b"<bash>cat n</bash>", 260], [259, *seen, 260, 258], \
        [*f"<submit>{n}</submit>".encode(), 260]
    assert made.ids == tuple(i for part in wanted for i in part)
    assert made.mask == tuple(i % 2 for i, part in enumerate(wanted) for _ in part)
    assert isinstance(made, Row)
