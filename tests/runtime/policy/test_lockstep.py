"""A batch of fixed composition, whatever the order and the time in which episodes ask."""

import asyncio
import random

import pytest

from guerdon.runtime.agent.renderer import ByteCodec, TextRenderer
from guerdon.runtime.contracts.policy import Occasion, PolicyFault
from guerdon.runtime.contracts.sampling import Request, Sampled, SamplerFault, Sampling
from guerdon.runtime.contracts.trajectory import Message
from guerdon.runtime.policy.lockstep import Lockstep
from guerdon.runtime.policy.trained import Trained, session

END = ByteCodec.markers["end"]


class Echo:
    """A sampler whose answer tells the batch it was in: its size, and the place in it."""

    def __init__(self, fail_at=None):
        self.batches = []
        self.fail_at = fail_at

    async def generate(self, requests):
        await asyncio.sleep(0)
        if len(self.batches) == self.fail_at:
            raise SamplerFault("rank 0 died; run it again")
        self.batches.append([r.session for r in requests])
        return [Sampled((len(requests), i, END), (-0.5, -1.0, -0.25), 7, True) for i, _ in enumerate(requests)]

    async def forget(self, sessions):
        pass


def request(name, turn=0):
    return Request(name, (1, 2), Sampling(4), turn=turn)


async def play(lockstep, turns, rng):
    """Each member asks `turns[name]` times, with pauses of its own, then leaves."""
    async def one(name, count):
        for turn in range(count):
            for _ in range(rng.randrange(5)):
                await asyncio.sleep(0)
            await lockstep.generate(request(name, turn))
        lockstep.leave(name)

    names = list(turns)
    rng.shuffle(names)
    lockstep.begin(turns)
    await asyncio.gather(*(one(name, turns[name]) for name in names))


@pytest.mark.parametrize("seed", range(8))
def test_batches_do_not_hang_on_timing(seed):
    sampler = Echo()
    asyncio.run(play(Lockstep(sampler), {"a": 1, "b": 3, "c": 2, "d": 0}, random.Random(seed)))
    assert sampler.batches == [["a", "b", "c"], ["b", "c"], ["b"]]


def test_a_member_that_never_asks_holds_no_one_up_once_it_left():
    async def go():
        sampler = Echo()
        lockstep = Lockstep(sampler)
        lockstep.begin(["a", "b"])
        asked = asyncio.create_task(lockstep.generate(request("a")))
        await asyncio.sleep(0.01)
        assert sampler.batches == []
        lockstep.leave("b")
        await asked
        return sampler.batches

    assert asyncio.run(go()) == [["a"]]


def test_one_that_lost_its_sandbox_joins_again():
    async def go():
        sampler = Echo()
        lockstep = Lockstep(sampler)
        lockstep.begin(["a", "b"])
        lockstep.leave("a")
        lockstep.join("a")
        first = asyncio.create_task(lockstep.generate(request("b")))
        await asyncio.sleep(0.01)
        assert sampler.batches == []
        await asyncio.gather(first, lockstep.generate(request("a")))
        return sampler.batches

    assert asyncio.run(go()) == [["a", "b"]]


def test_a_cancelled_request_is_in_no_batch():
    async def go():
        sampler = Echo()
        lockstep = Lockstep(sampler)
        lockstep.begin(["a", "b"])
        gone = asyncio.create_task(lockstep.generate(request("a")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        lockstep.leave("a")
        await lockstep.generate(request("b"))
        return sampler.batches

    assert asyncio.run(go()) == [["b"]]


def test_a_fault_of_the_sampler_reaches_every_member_and_stays():
    async def go():
        lockstep = Lockstep(Echo(fail_at=0))
        lockstep.begin(["a", "b"])
        got = await asyncio.gather(*(lockstep.generate(request(n)) for n in "ab"), return_exceptions=True)
        later = await asyncio.gather(lockstep.generate(request("a")), return_exceptions=True)
        return got + later, lockstep.fault

    got, fault = asyncio.run(go())
    assert [str(one) for one in got] == ["rank 0 died; run it again"] * 3 and got[0] is fault


class Says:
    """A sampler that gives the same ids in every turn and keeps the prefixes it was given."""

    def __init__(self, ids):
        self.ids = ids
        self.seen = []

    async def generate(self, requests):
        self.seen += [r.ids for r in requests]
        return [Sampled(self.ids, (-0.5,) * len(self.ids), 3, True) for _ in requests]

    async def forget(self, sessions):
        pass


def test_what_was_sampled_is_never_tokenised_again():
    # A tokenizer would write "é" as two bytes; the policy sampled one of them, which is no text at all.
    ids = (104, 0xC3, END)
    renderer = TextRenderer()

    async def go():
        sampler = Says(ids)
        lockstep = Lockstep(sampler)
        lockstep.begin([session(5)])
        policy = Trained("policy@3", lockstep, renderer, Sampling(8, stop=(END,)))
        episode = policy.start(Occasion(None, (), None, None), "policy@3", 5)
        prompt = Message("user", "hé")
        first = await episode.act([prompt])
        seen = Message("tool", "ok")
        second = await episode.act([prompt, first.message, seen])
        episode.end()
        return sampler.seen, first, second, lockstep.members

    prefixes, first, second, members = asyncio.run(go())
    assert prefixes[1][: len(prefixes[0]) + len(ids)] == prefixes[0] + ids
    assert first.tokens.ids == prefixes[0] + ids and sum(first.tokens.mask) == len(ids)
    assert first.tokens.ids + second.tokens.ids == prefixes[1] + ids
    assert second.tokens.logprobs[-3:] == (-0.5,) * 3 and set(second.tokens.logprobs[:-3]) == {0.0}
    assert first.malformed and "UTF-8" in first.malformed[0] and first.tokens.weights_version == 3
    assert members == set()


def test_a_fault_of_the_sampler_is_the_policys_and_no_result():
    async def go():
        lockstep = Lockstep(Echo(fail_at=0))
        lockstep.begin([session(5)])
        policy = Trained("policy@0", lockstep, TextRenderer(), Sampling(8))
        await policy.start(Occasion(None, (), None, None), "policy@0", 5).act([Message("user", "hi")])

    with pytest.raises(PolicyFault, match="rank 0 died"):
        asyncio.run(go())
