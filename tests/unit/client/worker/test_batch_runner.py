"""Batch handlers: when a batch starts, how its messages are answered, and how a worker with batches stops."""

from __future__ import annotations

import asyncio
import time
from itertools import chain
from typing import Any

import pytest

import lakelog
from lakelog.client.worker.answer_rounds import ACK, Decision, in_rounds
from lakelog.errors import InvalidRequest, LeaseLost, OutOfOrder
from lakelog.model.group import Order
from lakelog.model.lease import ConsumeRequest, Verb
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.test_worker import finished, topic

FAST = lakelog.Fixed(max=5, seconds=0.02)


async def test_a_batch_is_full_or_has_waited() -> None:
    async with topic(250) as (log, found, groups):
        sizes: list[int] = []
        starts: list[float] = []

        @found.subscribe(group="g", start_from="earliest", batch=100, batch_wait=0.3)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            sizes.append(len(batch))
            starts.append(time.monotonic())

        await log.start()
        await finished(log)
        assert sizes == [100, 100, 50] and starts[2] - starts[1] >= 0.25
        assert log.counts["work/g"].acked == 250
        # One call takes a batch and carries the acks of the one before.
        assert sum(len(answer.offsets) for call in groups.said for answer in call) == 250
        assert max(request.max_messages for request in groups.requests) == 100


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_named_failures_become_dead_letters_and_the_others_are_acked(is_async: bool) -> None:
    async with topic(20) as (log, found, _):
        dead: list[int] = []
        values: list[int] = []

        def name_odd(batch: Any) -> None:
            values.extend(batch.values)
            for message in batch:
                if message.value % 5 == 0:
                    batch.fail(message, f"bad row {message.value}")

        async def coroutine(batch: lakelog.AsyncBatch[int]) -> None:
            name_odd(batch)

        def plain(batch: lakelog.Batch[int]) -> None:
            name_odd(batch)

        handler = coroutine if is_async else plain
        hook = lambda delivery, error: dead.append(delivery.value)  # noqa: E731
        found.subscribe(handler, group="g", start_from="earliest", batch=10, batch_wait=0.05, on_dead=hook)
        await log.start()
        await finished(log)
        await log.stop()
        assert sorted(values) == list(range(20)) and sorted(dead) == [0, 5, 10, 15]
        assert log.counts["work/g"].acked == 16 and log.counts["work/g"].dead == 4
        listed = [each async for each in found.dead_letters("g")]
        assert sorted(each.error for each in listed) == sorted(f"bad row {n}" for n in (0, 5, 10, 15))


async def test_a_handler_that_raises_has_its_whole_batch_retried_also_what_it_named() -> None:
    async with topic(10) as (log, found, _):
        tries: list[list[int]] = []

        @found.subscribe(group="g", start_from="earliest", batch=10, retries=FAST)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            tries.append(batch.values)
            if len(tries) == 1:
                batch.fail(batch[0], "bad")
                raise ValueError("the database is away")

        await log.start()
        await finished(log)
        assert sorted(tries[0]) == list(range(10)) and sorted(chain(*tries[1:])) == list(range(10))
        assert log.counts["work/g"].failed == 10 and log.counts["work/g"].dead == 0


async def test_keys_keep_their_order_over_batches_failures_and_parallel_handlers() -> None:
    """A key is in one batch at a time, and its later messages wait while earlier ones are retried."""
    async with topic(0, partitions=2) as (log, found, _):
        for value in range(120):
            await found.publish([value % 6, value], key=str(value % 6))
        done: dict[int, list[int]] = {key: [] for key in range(6)}
        running: set[int] = set()
        failed: list[int] = []

        @found.subscribe(group="g", start_from="earliest", batch=15, batch_wait=0.02, concurrency=3, retries=FAST)
        async def load(batch: lakelog.AsyncBatch[list[int]]) -> None:
            keys = {key for key, _ in batch.values}
            assert not keys & running, "a key is in two batches"
            running.update(keys)
            await asyncio.sleep(0.005)
            running.difference_update(keys)
            for _, value in batch.values:
                if value in (30, 61) and value not in failed:
                    failed.append(value)
                    raise ValueError(f"{value} failed once")
            for key, value in batch.values:
                done[key].append(value)

        await log.start()
        await finished(log)
        for key in range(6):
            assert done[key] == sorted(done[key]) and set(done[key]) == set(range(key, 120, 6)), done[key]
        assert sorted(failed) == [30, 61] and log.counts["work/g"].lost == 0


async def test_mixed_answers_of_one_key_are_sent_in_order() -> None:
    async with topic(0) as (log, found, groups):
        for value in range(6):
            await found.publish(value, key="k")

        @found.subscribe(group="g", start_from="earliest", batch=6, batch_wait=5.0)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            assert batch.values == list(range(6))
            for number in (0, 2, 3):
                batch.fail(batch[number], f"bad {number}")

        await log.start()
        await finished(log)
        said = [(answer.verb, answer.offsets) for call in groups.said for answer in call]
        assert said == [("fail", (0,)), ("ack", (1,)), ("fail", (2,)), ("fail", (3,)), ("ack", (4, 5))]
        assert log.counts["work/g"].lost == 0 and log.counts["work/g"].dead == 3


async def test_a_nack_of_one_message_takes_back_only_the_later_ones_of_its_key() -> None:
    async with topic(0) as (log, found, _):
        for value in range(6):
            await found.publish(value, key="even" if value % 2 == 0 else "odd")
        batches: list[list[int]] = []

        @found.subscribe(group="g", start_from="earliest", batch=6, batch_wait=0.1, retries=FAST)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            batches.append(batch.values)
            if len(batches) == 1:
                zero, two = (batch[batch.values.index(value)] for value in (0, 2))
                with pytest.raises(OutOfOrder):
                    await two.nack()
                await zero.ack()
                await two.nack()

        await log.start()
        await finished(log)
        assert sorted(batches[0]) == list(range(6)) and list(chain(*batches[1:])) == [2, 4]
        counts = log.counts["work/g"]
        assert (counts.acked, counts.failed, counts.lost) == (6, 1, 0)


async def test_a_chain_that_is_longer_than_a_batch_continues_in_the_next_one() -> None:
    async with topic(0) as (log, found, _):
        for value in range(25):
            await found.publish(value, key="k")
        batches: list[list[int]] = []
        found.subscribe(
            lambda batch: batches.append(batch.values), group="g", start_from="earliest", batch=10, batch_size=50,
            batch_wait=0.05, prefetch=30,
        )  # fmt: skip
        await log.start()
        await finished(log)
        assert list(chain(*batches)) == list(range(25)) and max(map(len, batches)) == 10


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_batch_that_takes_too_long_has_failed(is_async: bool) -> None:
    async with topic(4) as (log, found, _):
        ends = asyncio.Event()

        async def slow(batch: Any) -> None:
            await asyncio.sleep(600)

        def blocks(batch: Any) -> None:
            while not ends.is_set():
                time.sleep(0.01)

        handler = slow if is_async else blocks
        found.subscribe(handler, group="g", start_from="earliest", batch=4, ack_timeout=0.2, retries=0)
        await log.start()
        await finished(log)
        counts = log.counts["work/g"]
        ends.set()
        await eventually_async(lambda: counts.dead == 4, what="the response to the failures has arrived")
        assert counts.timed_out == 4
        listed = [each async for each in found.dead_letters("g")]
        assert all(each.error.startswith("timeout: the handler did not end within 0.2 s") for each in listed)


async def test_more_time_for_a_message_or_a_batch_is_time_for_the_batch() -> None:
    async with topic(4) as (log, found, _):
        calls: list[int] = []

        @found.subscribe(group="g", start_from="earliest", batch=4, ack_timeout=1.0)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            calls.append(len(batch))
            await batch.extend(2.2)
            await asyncio.sleep(1.1)
            await batch[2].extend(60)
            await asyncio.sleep(1.2)

        await log.start()
        await finished(log)
        assert calls == [4] and log.counts["work/g"].timed_out == 0


async def test_a_worker_that_stops_finishes_its_batch_and_gives_the_others_back() -> None:
    async with topic(30) as (log, found, _):
        began, ends = asyncio.Event(), asyncio.Event()

        @found.subscribe(group="g", start_from="earliest", batch=10, prefetch=20)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            began.set()
            await ends.wait()

        await log.start()
        counts = log.counts["work/g"]
        await began.wait()
        stopping = asyncio.create_task(log.stop(10))
        await eventually_async(lambda: counts.released == 20, what="the others are given back at once")
        ends.set()
        await stopping
        assert counts.acked == 10 and counts.failed == 0
        assert [each.leased for each in await log.group("g").progress()] == [0]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_batch_that_runs_when_the_time_to_stop_is_over_is_given_back(is_async: bool) -> None:
    async with topic(5) as (log, found, _):
        began: list[int] = []
        cancelled: list[int] = []
        ends = asyncio.Event()

        async def slow(batch: Any) -> None:
            began.append(len(batch))
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.append(len(batch))
                raise

        def blocks(batch: Any) -> None:
            began.append(len(batch))
            while not ends.is_set():
                time.sleep(0.01)

        found.subscribe(slow if is_async else blocks, group="g", start_from="earliest", batch=5)
        await log.start()
        counts = log.counts["work/g"]
        await eventually_async(lambda: began, what="the batch runs")
        await log.stop(1.2)
        ends.set()
        assert [each.leased for each in await log.group("g").progress()] == [0]
        assert counts.released == 5 and counts.failed == counts.acked == 0 and cancelled == ([5] if is_async else [])


async def test_values_that_cannot_be_decoded_or_are_not_wanted_do_not_reach_the_handler() -> None:
    async with topic(0) as (log, found, _):
        for value in (1, "text", 2, 3):
            await found.publish(value, key="k")
        seen: list[list[int]] = []
        typed = log.topic("work", int)
        typed.subscribe(
            lambda batch: seen.append(batch.values), group="g", start_from="earliest", batch=4, filter=lambda n: n != 2
        )
        await log.start()
        await finished(log)
        counts = log.counts["work/g"]
        assert seen == [[1, 3]] and (counts.acked, counts.skipped, counts.dead, counts.lost) == (3, 1, 1, 0)


async def test_a_lost_lease_is_counted_for_each_message_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with topic(8) as (log, found, groups):
        groups.answer_faults.append(LeaseLost("over"))
        found.subscribe(lambda batch: None, group="g", start_from="earliest", batch=8)
        await log.start()
        await eventually_async(lambda: log.counts["work/g"].lost == 8, what="the lease is lost")
        lines = [each.getMessage() for each in caplog.records if "refused the answer" in each.getMessage()]
        assert len(lines) == 1 and "with 7 more of its batch" in lines[0]


async def test_a_suspect_is_a_batch_of_its_own_and_runs_alone() -> None:
    """No other handler runs beside it, and the server is informed before it begins."""
    async with topic(3) as (log, found, groups):
        begin: dict[str, Any] = {"start_from": "earliest"}
        request = ConsumeRequest(
            topic="work", group="g", owner="dead", request_id="r", lease_ms=150, max_messages=3, **begin
        )
        other = log.topic("other")
        await other.create()
        await other.publish_many(list(range(200)))
        running: set[int] = set()
        sizes: list[int] = []
        beside: list[set[int]] = []

        @found.subscribe(group="g", start_from="earliest", batch=10, batch_wait=0.05)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            assert any(answer.alone for call in groups.said for answer in call)
            sizes.append(len(batch))
            for _ in range(5):
                beside.append(set(running))
                await asyncio.sleep(0.002)

        @other.subscribe(group="o", concurrency=2, start_from="earliest", batch=5)
        async def load_other(batch: lakelog.AsyncBatch[int]) -> None:
            running.update(batch.values)
            await asyncio.sleep(0.005)
            running.difference_update(batch.values)

        assert len((await groups.consume(request, 5.0)).leases) == 1
        await log.start()
        await finished(log)
        assert sizes == [1, 1, 1] and beside == [set()] * 15
        await eventually_async(lambda: log.counts["other/o"].acked > 0, what="the others run, too")


async def test_manual_batches_are_answered_by_the_handler() -> None:
    async with topic(6) as (log, found, _):
        sizes: list[int] = []

        @found.subscribe(group="g", start_from="earliest", batch=6, ack="manual", retries=FAST)
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            sizes.append(len(batch))
            if len(sizes) == 1:
                await batch[:2].ack()
                await batch[2:4].nack(reason="not now")
                return
            await batch.ack()

        await log.start()
        await finished(log)
        counts = log.counts["work/g"]
        assert sizes[0] == 6 and sum(sizes) == 10 and (counts.acked, counts.failed) == (6, 4)


async def test_hooks_are_called_for_each_message_of_a_batch() -> None:
    async with topic(5) as (log, found, _):
        acked: list[int] = []
        found.subscribe(
            lambda batch: None, group="g", start_from="earliest", batch=5, on_ack=lambda each: acked.append(each.value)
        )
        await log.start()
        await finished(log)
        await eventually_async(lambda: sorted(acked) == list(range(5)), what="the hooks have run")


async def test_mistakes_are_named_when_the_handler_is_subscribed() -> None:
    async with topic(0) as (_, found, _):
        for options, text in [
            ({"batch": 0}, "`batch`"),
            ({"batch": 10_001}, "`batch`"),
            ({"batch": 5, "batch_wait": -1}, "`batch_wait`"),
            ({"batch": 50, "max_in_flight": 10}, "at least `batch`, which is 50"),
        ]:
            with pytest.raises(InvalidRequest, match=text):
                found.subscribe(lambda batch: None, group="g", **options)
        with pytest.raises(InvalidRequest, match=r"\(batch\)"):
            found.subscribe(lambda value, delivery: None, group="g", batch=5)


def test_rounds_hold_different_answers_of_a_key_apart() -> None:
    class Message:
        def __init__(self, offset: int, key: bytes | None) -> None:
            self.message = self
            self.offset, self.key, self.partition = offset, key, 0

    messages: list[Any] = [Message(n, b"k" if n < 4 else None) for n in range(6)]
    fail = Decision(Verb.FAIL)
    decide = lambda each: fail if each.offset in (1, 5) else ACK  # noqa: E731
    found = in_rounds(messages, decide, Order.KEY)
    assert [[each.offset for each in some] for some in found] == [[0, 4, 5], [1], [2, 3]]
    assert len(in_rounds(messages, decide, Order.NONE)) == 1
