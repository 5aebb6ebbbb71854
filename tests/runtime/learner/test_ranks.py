"""Ranks as processes: what they answer, and that none is left however they or the controller end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guerdon.runtime.contracts.learner import LearnerFault, LossConfig, Row
from guerdon.runtime.contracts.sampling import Request, SamplerFault, Sampling
from guerdon.runtime.learner.ranks import Ranks
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, Parallel

TINY = ModelShape(layers=2, hidden=16, ffn=24, heads=2, kv_heads=2, head_dim=8, vocab=31, context=64)
SPREAD = LearnerConfig(model=TINY, parallel=Parallel(2, tensor=2, sequence=True), threads=1, seed=3)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pids, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


def rows_of(requests, answers):
    for request, sampled in zip(requests, answers, strict=True):
        ids = (*request.ids, *sampled.ids)
        mask = (0,) * len(request.ids) + (1,) * len(sampled.ids)
        old = (0.0,) * len(request.ids) + sampled.logprobs
        yield Row(ids, mask, old, tuple(0.5 * m for m in mask))


async def talk():
    """One life of two ranks: sample, train, publish, be cancelled, lose a rank."""
    found = {}
    ranks = await Ranks.start(SPREAD)
    pids = [member.pid for member in ranks._processes.members]
    try:
        requests = [Request(f"s{index}", tuple(range(1, 3 + index)), Sampling(6), seed=9) for index in range(5)]
        answers = await ranks.generate(requests)
        found["again"] = await ranks.generate(list(reversed(requests))) == list(reversed(answers))
        rows = list(rows_of(requests, answers))
        scored = await ranks.logprobs(rows)
        found["gap"] = max(
            abs(new - old)
            for row, score in zip(rows, scored, strict=True)
            for new, old, m in zip(score, row.logprobs, row.mask, strict=True)
            if m
        )
        first = await ranks.publish()
        found["metrics"] = await ranks.train_step(rows, LossConfig(), 1e-2)
        try:
            await ranks.generate(requests)
        except SamplerFault as fault:
            found["unpublished"] = str(fault)
        second = await ranks.publish()
        found["versions"] = (answers[0].weights_version, first.version, second.version, first.digest != second.digest)
        found["version sampled"] = (await ranks.generate(requests))[0].weights_version
        try:
            await ranks.generate([Request("long", tuple([1] * 65), Sampling(2))])
        except SamplerFault as fault:
            found["too long"] = str(fault)
        await ranks.forget(["s0", "nobody"])
        # Cancelled, the call is finished all the same, and the next one gets its own answer.
        call = asyncio.ensure_future(ranks.logprobs(rows))
        await asyncio.sleep(0)
        call.cancel()
        found["after a cancelled call"] = await ranks.publish() == second
        found["cancelled"] = call.cancelled()
        os.kill(pids[1], signal.SIGKILL)
        began = time.monotonic()
        for _ in range(2):
            try:
                await ranks.train_step(rows, LossConfig(), 1e-2)
            except LearnerFault as fault:
                found.setdefault("deaths", []).append(str(fault))
        found["seconds"] = time.monotonic() - began
        found["others"] = gone(pids, 5)
    finally:
        await ranks.close()
        await ranks.close()
    try:
        await ranks.publish()
    except LearnerFault as fault:
        found["closed"] = str(fault)
    return found


@pytest.fixture(scope="module")
def life():
    return asyncio.run(asyncio.wait_for(talk(), 90))


def test_the_learner_scores_what_was_sampled_as_the_sampler_did(life):
    assert life["gap"] < 1e-5
    assert life["again"], "a turn hangs on its session, seed and place alone"


def test_weights_are_sampled_from_once_they_are_published(life):
    assert life["versions"] == (0, 0, 1, True)
    assert life["unpublished"].startswith("the weights have changed since they were published: call publish")
    assert life["version sampled"] == 1
    assert life["metrics"]["tokens"] == 30
    assert life["metrics"]["kl"] == pytest.approx(0.0, abs=1e-5)


def test_a_fault_of_one_call_leaves_the_ranks(life):
    assert "65" in life["too long"] and "64" in life["too long"]


def test_a_cancelled_call_does_not_confuse_the_next(life):
    assert life["cancelled"] and life["after a cancelled call"]


def test_a_killed_rank_ends_all_and_is_named(life):
    assert len(life["deaths"]) == 2 and life["deaths"][0] == life["deaths"][1]
    assert life["deaths"][0].startswith("rank 1 of 2 was ended by SIGKILL")
    assert "\n" not in life["deaths"][0] and life["deaths"][0].endswith("load its last checkpoint")
    assert life["others"] and life["seconds"] < 20


def test_a_configuration_that_cannot_be_starts_nothing():
    with pytest.raises(LearnerFault, match="no multiple"):
        asyncio.run(Ranks.start(LearnerConfig(model=TINY, parallel=Parallel(3, tensor=2))))


def test_a_killed_controller_leaves_no_process():
    script = Path(__file__).with_name("controller.py")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as controller:
        try:
            pids = [int(word) for word in controller.stdout.readline().split()]
            assert len(pids) == 2 and all(alive(pid) for pid in pids)
        finally:
            controller.kill()
    assert gone(pids)
