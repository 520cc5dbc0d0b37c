"""How far a worker leases ahead of its handlers: far if they are fast, not at all if they are slow or unknown."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lakelog.client.worker.options import SubscriptionOptions
from lakelog.client.worker.prefetch import PATIENCE_SECONDS, Prefetch
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.test_worker import finished, topic


def handled(prefetch: Prefetch, seconds: float, times: int) -> int:
    for _ in range(times):
        prefetch.handled(seconds)
    return prefetch.size


def test_it_grows_with_fast_handlers_and_shrinks_with_the_first_slow_one() -> None:
    prefetch = Prefetch(SubscriptionOptions())
    assert prefetch.size == 0 and prefetch.capacity == 1
    assert handled(prefetch, 0.0001, 1) == 0, "one fast handler says little"
    assert handled(prefetch, 0.0001, 40) == 50, "the default batch_size"
    assert handled(prefetch, 1.0, 1) == 0
    assert handled(prefetch, 0.02, 40) == 4, "what is handled in 100 ms"


@pytest.mark.parametrize(
    ("options", "capacity"),
    [
        ({"prefetch": 0, "concurrency": 3}, 3),
        ({"prefetch": 7, "concurrency": 3}, 10),
        ({"max_in_flight": 5, "concurrency": 2}, 5),
        ({"max_in_flight": 2, "concurrency": 8}, 2),
        ({"max_in_flight": 5, "prefetch": 1, "concurrency": 2}, 3),
        ({"max_in_flight": 5, "prefetch": 9, "concurrency": 2}, 5),
    ],
)
def test_a_number_from_the_caller_is_kept(options: dict[str, int], capacity: int) -> None:
    prefetch = Prefetch(SubscriptionOptions(**options))  # type: ignore[arg-type]
    assert prefetch.capacity == capacity and prefetch.patience_seconds is None
    assert str(prefetch).endswith(f"prefetch {max(0, capacity - options['concurrency'])}")
    handled(prefetch, 0.0001, 40)
    prefetch.stalled()
    assert prefetch.capacity == capacity


async def test_a_default_worker_leases_many_fast_messages_in_few_calls() -> None:
    async with topic(600, partitions=2) as (log, found, groups):
        running, most = 0, 0

        @found.subscribe(group="g", start_from="earliest")
        async def handle(value: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        await log.start()
        await finished(log)
        assert (
            most == 1 and len(groups.requests) < 150 and max(request.max_messages for request in groups.requests) > 10
        )


async def test_a_default_worker_takes_slow_messages_one_at_a_time() -> None:
    """Two workers with slow handlers share what there is."""
    async with topic(4) as (log, found, groups):
        found.subscribe(lambda value: time.sleep(0.15), group="g", start_from="earliest")
        await log.start()
        await finished(log)
        assert {request.max_messages for request in groups.requests} == {1}


async def test_messages_go_back_when_handlers_become_slow() -> None:
    async with topic(300) as (log, found, groups):
        go_on = asyncio.Event()
        seen: list[int] = []

        @found.subscribe(group="g", start_from="earliest")
        async def handle(value: int) -> None:
            if value == 300:
                await go_on.wait()
            seen.append(value)

        async def leased() -> int:
            return sum(each.leased for each in await log.group("g").progress())

        async def one_is_leased() -> bool:
            return await leased() == 1

        await log.start()
        await finished(log)
        await found.publish_many(list(range(300, 320)))
        await eventually_async(leased, what="the slow message is held")
        begun = time.monotonic()
        await eventually_async(one_is_leased, what="the messages behind it went back")
        assert time.monotonic() - begun < 20 * PATIENCE_SECONDS and len(seen) == 300
        asked = len(groups.requests)
        assert log.counts["work/g"].released > 0 and log.counts["work/g"].failed == 0
        go_on.set()
        await finished(log)
        assert sorted(seen) == list(range(320)) and len(groups.requests) > asked


async def test_time_that_a_message_waits_for_a_slot_is_not_its_handlers() -> None:
    """The lease of a waiting message is extended, and `ack_timeout` starts with the handler."""
    async with topic(12) as (log, found, _):
        seen: list[tuple[int, int]] = []

        @found.subscribe(group="g", start_from="earliest", prefetch=12, ack_timeout=1.8, lease=1.8)
        async def handle(value: int, delivery: Any) -> None:
            await asyncio.sleep(0.2)
            seen.append((value, delivery.attempt))

        await log.start()
        await finished(log)
        counts = log.counts["work/g"]
        assert seen == [(value, 1) for value in range(12)] and (counts.timed_out, counts.lost) == (0, 0)
