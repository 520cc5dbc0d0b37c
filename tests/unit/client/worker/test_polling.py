"""Answers that go with the next call for messages, and those that do not."""

from __future__ import annotations

import asyncio
import time

import pytest

from lakelog.client.worker import polling
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.faulty_groups import HANGS, LOST, FaultyLeaseTransport
from tests.unit.client.worker.test_worker import finished, topic


def calls(groups: FaultyLeaseTransport) -> tuple[int, int]:
    """How many calls have carried answers with a request for messages, and how many answers alone."""
    carried = sum(bool(request.answers) for request in groups.requests)
    return carried, len(groups.said) - carried


@pytest.mark.parametrize("options", [{}, {"concurrency": 64, "batch_size": 64}], ids=["default", "many"])
async def test_a_busy_worker_sends_its_acks_with_its_next_call(options: dict[str, int]) -> None:
    async with topic(2000, partitions=2) as (log, found, groups):
        seen: list[int] = []

        @found.subscribe(group="g", start_from="earliest", **options)
        async def handle(value: int) -> None:
            seen.append(value)

        await log.start()
        await finished(log)
        carried, alone = calls(groups)
        assert sorted(seen) == list(range(2000)) and log.counts["work/g"].lost == 0
        # Some go alone while the worker learns how fast its handlers are.
        assert carried > 10 and alone < carried / 2, (carried, alone)


async def test_an_ack_does_not_wait_for_a_call_that_waits_for_messages() -> None:
    """A worker with room for more asks for them, and its server waits for 20 s."""
    async with topic(0) as (log, found, groups):
        found.subscribe(lambda value: time.sleep(0.1), group="g", start_from="earliest", concurrency=4)
        await log.start()
        for value in range(3):
            await found.publish(value)
            begun = time.monotonic()
            await eventually_async(lambda value=value: log.counts["work/g"].acked == value + 1, what="acked")
            assert time.monotonic() - begun < 5.0
        assert calls(groups) == (0, 3)


async def test_a_message_of_a_worker_without_room_is_acked_with_the_call_for_the_next() -> None:
    async with topic(5) as (log, found, groups):
        seen: list[int] = []
        found.subscribe(seen.append, group="g", start_from="earliest", prefetch=0)
        await log.start()
        await finished(log)
        assert seen == list(range(5)) and calls(groups) == (5, 0)
        assert [request.wait_ms == 0 for request in groups.requests if request.answers] == [True] * 5


async def test_what_was_said_with_a_call_without_an_answer_is_said_again() -> None:
    """Once by itself; the call is repeated without it, and gets its leases."""
    async with topic(6) as (log, found, groups):
        seen: list[int] = []
        found.subscribe(seen.append, group="g", start_from="earliest", prefetch=0)
        groups.consume_faults.extend(["", LOST, "", LOST])
        await log.start()
        await finished(log)
        assert seen == list(range(6)) and calls(groups)[1] == 2
        by_request: dict[str, list[int]] = {}
        for request in groups.requests:
            by_request.setdefault(request.request_id, []).append(len(request.answers))
        assert [tries for tries in by_request.values() if len(tries) > 1] == [[1, 0], [1, 0]]
        await eventually_async(lambda: log.counts["work/g"].acked == 6, what="the worker knows it too")
        assert log.counts["work/g"].lost == 0


async def test_answers_do_not_wait_for_a_call_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_MOST_HELD_SECONDS", 0.05)
    async with topic(3) as (log, found, groups):
        seen: list[int] = []
        go_on = asyncio.Event()

        @found.subscribe(group="g", start_from="earliest", concurrency=2, prefetch=0, batch_size=1)
        async def handle(value: int) -> None:
            if value == 1:
                await go_on.wait()
            seen.append(value)

        # The second call gets message 1, the one with the ack of message 0 never returns.
        groups.consume_faults.extend(["", "", HANGS])
        await log.start()
        await eventually_async(lambda: calls(groups)[0] == 1, what="the ack of the first message is on its way")
        go_on.set()
        await eventually_async(lambda: log.counts["work/g"].acked == 1, what="the other ack was answered")
        assert calls(groups) == (1, 1) and sorted(seen) == [0, 1]


async def test_a_worker_that_stops_during_a_call_with_answers_loses_neither() -> None:
    async with topic(4) as (log, found, groups):
        seen: list[int] = []
        found.subscribe(seen.append, group="g", start_from="earliest", prefetch=0)
        groups.consume_faults.extend(["", HANGS])
        await log.start()
        counts = log.counts["work/g"]
        # Not before the fault is taken: the call that gives back leases would take it.
        await eventually_async(lambda: not groups.consume_faults, what="the second call, with the ack, hangs")
        assert [len(request.answers) for request in groups.requests] == [0, 1]
        await log.stop(5.0)
        progress = await log.group("g").progress()
        assert seen == [0] and counts.acked == 1
        assert [(each.committed, each.leased) for each in progress] == [(1, 0)]
