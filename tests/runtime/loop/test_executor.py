"""Admission, order, faults and stops."""

import asyncio
import os
import signal

import pytest

from guerdon.runtime.contracts.sandbox import SandboxFault
from guerdon.runtime.schedule.executor import run_jobs
from guerdon.runtime.schedule.retry import Breaker, HostFault, with_retries
from guerdon.runtime.schedule.stop import Interrupted, Stop, stop_on_signals


def test_jobs_begin_in_order_and_never_more_than_admitted():
    begun, active, most = [], 0, 0

    async def work(job):
        nonlocal active, most
        begun.append(job)
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.001 * (job % 3))
        active -= 1

    asyncio.run(run_jobs(iter(range(20)), work, 3))
    assert begun == list(range(20)) and most == 3


def test_jobs_are_drawn_only_when_admitted():
    drawn = []

    def jobs():
        for n in range(100):
            drawn.append(n)
            yield n

    async def work(job):
        if job == 5:
            raise ValueError("five")
        await asyncio.sleep(0)

    with pytest.raises(ValueError, match="five"):
        asyncio.run(run_jobs(jobs(), work, 2))
    assert len(drawn) < 10


@pytest.mark.parametrize("how", ["fault", "stop"])
def test_the_others_are_cancelled_and_have_cleaned_up_before_it_is_told(how):
    cleaned = []

    async def go():
        stop = Stop()

        async def work(job):
            try:
                if job == 2:
                    await asyncio.sleep(0)
                    if how == "fault":
                        raise ValueError("two")
                    stop.request()
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                cleaned.append(job)

        await run_jobs(iter(range(9)), work, 3, stop)

    with pytest.raises(ValueError if how == "fault" else Interrupted):
        asyncio.run(go())
    assert sorted(cleaned) == [0, 1, 2]


def test_two_ctrl_c_stop_once_and_let_the_clean_up_end():
    said, cleaned = [], []

    async def go():
        with stop_on_signals(said.append) as stop:
            async def work(job):
                try:
                    os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.sleep(60)
                finally:
                    os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.sleep(0.05)
                    cleaned.append(job)

            await run_jobs(iter([1]), work, 1, stop)

    with pytest.raises(Interrupted):
        asyncio.run(go())
    assert cleaned == [1] and [line.split(":")[0] for line in said] == ["stopping", "still stopping"]


def attempts(*faults):
    left = list(faults)
    count = 0

    async def attempt():
        nonlocal count
        count += 1
        if left:
            raise SandboxFault(left.pop(0), "broke")
        return count

    return attempt


def test_retries():
    assert asyncio.run(with_retries(attempts("exec-lost", "create-failed"), 2)) == 3
    with pytest.raises(SandboxFault, match="exec-lost"):
        asyncio.run(with_retries(attempts(*["exec-lost"] * 3), 2))
    with pytest.raises(HostFault, match="service-down"):
        asyncio.run(with_retries(attempts("service-down"), 2))
    with pytest.raises(SandboxFault, match="setup-refused"):
        asyncio.run(with_retries(attempts("setup-refused"), 2))


def test_breaker_counts_in_a_row():
    breaker = Breaker(3)
    for _ in range(5):
        breaker.fault("x")
        breaker.fault("x")
        breaker.fine()
    breaker.fault("x")
    breaker.fault("x")
    with pytest.raises(HostFault, match="3 episodes in a row.*the wire broke"):
        breaker.fault("the wire broke")
