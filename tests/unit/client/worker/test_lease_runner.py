"""When and where handlers run: slots, deadlines, threads and the end of a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

from lakelog.client.worker.deadlines import DeadlineTimer
from lakelog.client.worker.threads import HandlerThreads
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.test_worker import finished, topic


async def test_an_alarm_rings_at_the_earliest_time_and_once() -> None:
    rung: list[float] = []
    alarm = DeadlineTimer(lambda: rung.append(time.monotonic()))
    begun = time.monotonic()
    for later in (50.0, 0.05, 30.0):
        alarm.set(begun + later)
    await eventually_async(lambda: rung, what="it rang")
    assert 0.05 <= rung[0] - begun < 15.0 and len(rung) == 1
    alarm.set(time.monotonic())
    alarm.stop()
    await asyncio.sleep(0.01)
    assert len(rung) == 1


@pytest.mark.parametrize("given", [0.3, 5.0], ids=["ack_timeout", "extend"])
async def test_handlers_time_out_within_100_ms_of_their_deadlines(given: float) -> None:
    """Many handlers that begin at different times end at their own deadlines, also at one that `extend` moved."""
    async with topic(0) as (log, found, _):
        late: list[float] = []
        loop = asyncio.get_running_loop()

        @found.subscribe(group="g", start_from="earliest", concurrency=20, ack_timeout=given, retries=0)
        async def handle(value: int, delivery: Any) -> None:
            if given > 0.3:
                await delivery.extend(0.3)
            begun, paused = time.monotonic(), 0.0

            def note() -> None:
                nonlocal paused
                paused = time.monotonic() - begun - 0.26

            # If the machine pauses, a timer just before the deadline is late, too.
            loop.call_later(0.26, note)
            try:
                await asyncio.sleep(600)
            finally:
                late.append(time.monotonic() - begun - 0.3 - paused)

        await log.start()
        for value in range(10):
            await found.publish(value)
            await asyncio.sleep(0.02)
        await finished(log)
        assert len(late) == 10 and log.counts["work/g"].timed_out == 10
        # The middle one: the machine may be busy.
        assert -0.05 < sorted(late)[5] < 0.1, late


async def test_free_slots_are_used_while_most_handlers_are_slow() -> None:
    """Keeps three of four slots for as long as the other one has messages."""
    async with topic(200, partitions=2) as (log, found, _):
        release, seen = asyncio.Event(), []

        @found.subscribe(group="g", start_from="earliest", concurrency=4, prefetch=0)
        async def handle(value: int) -> None:
            if value < 3:
                await release.wait()
            seen.append(value)

        await log.start()
        await eventually_async(lambda: len(seen) == 197, what="the free slot has handled the others")
        release.set()
        await finished(log)
        assert sorted(seen) == list(range(200))


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_worker_that_stops_cancels_slow_handlers_and_gives_their_messages_back(is_async: bool) -> None:
    async with topic(3) as (log, found, _):
        began: list[int] = []
        cancelled: list[int] = []
        ends = asyncio.Event()

        async def slow(value: int) -> None:
            began.append(value)
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.append(value)
                raise

        def blocks(value: int) -> None:
            began.append(value)
            while not ends.is_set():
                time.sleep(0.01)

        found.subscribe(slow if is_async else blocks, group="g", start_from="earliest", concurrency=2)
        await log.start()
        counts = log.counts["work/g"]
        await eventually_async(lambda: len(began) == 2, what="both slots are taken")
        await log.stop(1.2)
        ends.set()
        progress = await log.group("g").progress()
        assert [each.leased for each in progress] == [0] and counts.failed == counts.acked == 0
        assert counts.released == 2 and sorted(cancelled) == (sorted(began) if is_async else [])


@pytest.mark.parametrize("drain", [0.0, 20.0])
async def test_the_time_to_finish_after_a_signal_is_that_of_run(drain: float) -> None:
    async with topic(1) as (log, found, _):
        began = asyncio.Event()
        outcomes: list[str] = []

        @found.subscribe(group="g", start_from="earliest")
        async def handle(value: int) -> None:
            began.set()
            try:
                await asyncio.sleep(1.5 if drain else 600)
                outcomes.append("finished")
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise

        running = asyncio.create_task(log.run(drain=drain))
        await began.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert outcomes == ["finished" if drain else "cancelled"]


async def test_a_chain_goes_on_when_its_ack_is_answered_and_stops_at_a_failure() -> None:
    async with topic(0) as (log, found, groups):
        for value in range(4):
            await found.publish(value, key="k")
        seen: list[int] = []

        @found.subscribe(group="g", start_from="earliest", concurrency=4, prefetch=8, retries=1)
        async def handle(value: int) -> None:
            seen.append(value)
            if value == 1 and seen.count(1) == 1:
                raise ValueError("once")

        await log.start()
        await finished(log)
        assert seen == [0, 1, 1, 2, 3] and log.counts["work/g"].failed == 1
        assert [answer.offsets for call in groups.said for answer in call if answer.verb == "ack"] == [
            (0,),
            (1,),
            (2,),
            (3,),
        ]


def test_each_function_that_is_submitted_gets_a_thread() -> None:
    """Twenty that wait for one another, submitted among short ones and behind some that never return."""
    threads, never = HandlerThreads(), threading.Event()
    stuck = [threads.submit(never.wait) for _ in range(5)]
    barrier = threading.Barrier(20)
    together = []
    for number in range(20):
        together.append(threads.submit(lambda: barrier.wait(10)))
        assert threads.submit(lambda number=number: number).result(10) == number
    assert sorted(each.result(10) for each in together) == list(range(20))
    never.set()
    assert all(each.result(10) for each in stuck)
    threads.close()


def test_short_functions_share_a_few_threads() -> None:
    threads = HandlerThreads()
    seen = {threads.submit(threading.get_ident).result(10) for _ in range(200)}
    assert len(seen) <= 3
    threads.close()


async def test_a_function_is_refused_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, ran = HandlerThreads(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no more threads")))
        with pytest.raises(RuntimeError):
            threads.begin(ran.set)
    await threads.begin(lambda: None)
    assert not ran.is_set()
    threads.close()
