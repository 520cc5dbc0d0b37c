"""`drain`: handlers run until nothing is due, and the manual clock makes retries and leases due."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

import pytest

import lakelog
from lakelog.errors import InvalidRequest
from lakelog.testing import MemoryInstallation


@dataclass
class Order:
    account: str
    total: int


def test_a_plain_handler_runs_for_each_message(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders", type=Order)
    seen: list[Order] = []
    orders.subscribe(seen.append, group="billing")
    orders.publish_many([Order("a", 1), Order("a", 2)])
    result = lakelog_memory.drain(seen.append)
    assert seen == [Order("a", 1), Order("a", 2)]
    assert (result.acked, result.failed, result.errors) == (2, 0, ())
    assert lakelog_memory.group("billing").lag() == 0


def test_a_batch_handler_runs_without_waiting_for_more(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    sizes: list[int] = []

    @orders.subscribe(group="loading", batch=500, batch_wait=60)
    def load(batch: lakelog.Batch[int]) -> None:
        sizes.append(len(batch))
        batch.fail(batch[0], "bad")

    orders.publish_many(list(range(20)))
    lakelog_memory.fail_next(load, error=ValueError("ordered"))
    assert lakelog_memory.drain(load).failed == 20
    lakelog_memory.clock.advance(hours=1)
    result = lakelog_memory.drain(load)
    assert sizes == [20] and (result.acked, result.dead) == (19, 1)


def test_a_coroutine_handler_publishes_for_another_one(lakelog_memory: MemoryInstallation) -> None:
    log = lakelog.connect_async()
    orders, invoices = log.topic("orders"), log.topic("invoices")
    sent: list[str] = []

    @invoices.subscribe(group="mailing")
    def send(invoice: dict[str, str]) -> None:
        sent.append(invoice["account"])

    @orders.subscribe(group="billing", concurrency=8)
    async def bill(order: dict[str, str], delivery: lakelog.AsyncDelivery[dict[str, str]]) -> None:
        await asyncio.sleep(0.001)
        await invoices.publish({"account": order["account"]}, key=order["account"])

    lakelog_memory.topic("orders").publish_many([{"account": f"a{number}"} for number in range(20)])
    result = lakelog_memory.drain(send, bill)
    assert result.acked == 40
    assert sorted(sent) == sorted(f"a{number}" for number in range(20))
    lakelog_memory.assert_published("invoices", count=20)
    lakelog_memory.assert_published("invoices", count=1, key="a7", value={"account": "a7"})


def test_retries_are_due_when_the_clock_advances(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    attempts: list[int] = []

    @orders.subscribe(group="billing", retries=lakelog.Fixed(max=2, seconds=60))
    def bill(order: object, delivery: lakelog.Delivery[object]) -> None:
        attempts.append(delivery.attempt)
        raise ValueError("no")

    orders.publish({"total": 1})
    assert lakelog_memory.drain(bill).failed == 1
    assert lakelog_memory.drain(bill).failed == 0
    lakelog_memory.clock.advance(seconds=59)
    assert lakelog_memory.drain(bill).failed == 0
    lakelog_memory.clock.advance(seconds=1)
    assert lakelog_memory.drain(bill).failed == 1
    lakelog_memory.clock.advance(minutes=1)
    result = lakelog_memory.drain(bill)
    assert (result.failed, result.dead, attempts) == (1, 1, [1, 2, 3])
    assert [str(error) for error in result.errors] == ["no"]
    assert [letter.error for letter in orders.dead_letters("billing").list()] == ["ValueError: no"]


def test_a_lease_is_due_when_the_clock_advances(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    seen: list[int] = []

    @orders.subscribe(group="billing")
    def bill(order: dict[str, int], delivery: lakelog.Delivery[dict[str, int]]) -> None:
        seen.append(delivery.attempt)

    orders.publish({"total": 1})
    consumer = lakelog_memory.log.consumer("orders", group="billing", start_from="earliest", lease=30)
    with consumer:
        assert consumer.next(timeout=5) is not None
        assert lakelog_memory.drain(bill).acked == 0
        lakelog_memory.clock.advance(seconds=31)
        assert lakelog_memory.drain(bill).acked == 1
    assert seen == [2]


def test_a_waiting_consumer_gets_a_retry_when_the_clock_advances(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    orders.publish({"total": 1})
    with lakelog_memory.log.consumer("orders", group="billing", start_from="earliest") as consumer:
        first = consumer.next(timeout=5)
        assert first is not None
        first.nack(delay=3600)
        assert consumer.next(timeout=0.05) is None
        lakelog_memory.clock.advance(hours=1)
        again = consumer.next(timeout=10)
        assert again is not None and again.attempt == 2
        again.ack()


def test_a_day_takes_less_than_50_ms(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    orders.subscribe(print, group="billing", filter="value.total < 0")
    orders.publish_many([{"total": number} for number in range(1000)])
    lakelog_memory.drain(print)
    before, took = lakelog_memory.clock.now(), []
    for _ in range(5):
        began = time.monotonic()
        lakelog_memory.clock.advance(hours=24)
        took.append(time.monotonic() - began)
    assert (lakelog_memory.clock.now() - before).total_seconds() == 5 * 86_400
    # The machine may be busy with other tests; a single advance shows what it costs.
    assert min(took) < 0.05


def test_time_stands_still(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    orders.publish_many([1, 2])
    orders.publish(3)
    assert {message.appended_at for message in lakelog_memory.published("orders")} == {lakelog_memory.clock.now()}
    with pytest.raises(InvalidRequest, match="forward only"):
        lakelog_memory.clock.advance(seconds=-1)


def test_messages_expire_by_the_manual_clock(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    seen: list[int] = []
    orders.subscribe(seen.append, group="billing")
    lakelog_memory.clock.advance(days=30)
    orders.publish(1, expires=timedelta(minutes=1))
    orders.publish(2, expires=timedelta(hours=2))
    lakelog_memory.clock.advance(hours=1)
    lakelog_memory.drain(seen.append)
    assert seen == [2]


def test_drain_in_an_event_loop(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    loops: list[object] = []

    @orders.subscribe(group="billing")
    async def bill(order: object) -> None:
        loops.append(asyncio.get_running_loop())

    async def main() -> None:
        orders.publish(1)
        with pytest.raises(InvalidRequest, match="drain_async"):
            lakelog_memory.drain(bill)
        assert (await lakelog_memory.drain_async(bill)).acked == 1
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(main())


def test_async_handlers_of_two_drains_share_an_event_loop(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    loops: list[object] = []

    @orders.subscribe(group="billing")
    async def bill(order: object) -> None:
        loops.append(asyncio.get_running_loop())

    for number in range(2):
        orders.publish(number)
        lakelog_memory.drain(bill)
    assert len(loops) == 2 and loops[0] is loops[1]


def test_drain_without_handlers_runs_all(lakelog_memory: MemoryInstallation) -> None:
    with pytest.raises(InvalidRequest, match="No handler is subscribed"):
        lakelog_memory.drain()
    seen: list[int] = []
    lakelog_memory.topic("orders").subscribe(seen.append, group="billing")
    lakelog_memory.topic("orders").publish(1)
    lakelog_memory.drain()
    assert seen == [1]


def test_an_unknown_handler_is_refused(lakelog_memory: MemoryInstallation) -> None:
    def stray(order: int) -> None: ...

    with pytest.raises(InvalidRequest, match="stray is not subscribed"):
        lakelog_memory.drain(stray)


def test_a_handler_that_feeds_itself_ends_at_the_time_limit(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")

    @orders.subscribe(group="billing")
    def bill(order: int) -> None:
        orders.publish(order + 1)

    orders.publish(1)
    with pytest.raises(TimeoutError, match=r"still due after 0\.2 s"):
        lakelog_memory.drain(bill, timeout=0.2)


def test_a_group_begins_where_its_subscription_says(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    seen: list[int] = []
    orders.subscribe(seen.append, group="billing", start_from="latest")
    orders.publish(1)
    lakelog_memory.drain()
    orders.publish(2)
    lakelog_memory.drain()
    assert seen == [2]


def test_a_member_that_died_is_replaced_when_its_session_ends(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    seen: list[int] = []
    orders.subscribe(seen.append, group="billing", order="partition")
    orders.publish_many([1, 2])
    dead = lakelog_memory.log.consumer("orders", group="billing", start_from="earliest", order="partition", prefetch=0)
    with dead:
        assert dead.next(timeout=5) is not None
        assert lakelog_memory.drain().acked == 0
        lakelog_memory.clock.advance(minutes=1)
        lakelog_memory.drain()
        assert seen == [1, 2]
        assert lakelog_memory.group("billing").lag() == 0


def test_hooks_and_manual_acks_are_complete_when_drain_returns(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    told: list[str] = []

    async def on_ack(delivery: lakelog.AsyncDelivery[int]) -> None:
        await asyncio.sleep(0.01)
        told.append(f"acked {delivery.value}")

    async def on_dead(delivery: lakelog.AsyncDelivery[int], error: Exception) -> None:
        await asyncio.sleep(0.01)
        told.append(f"dead {delivery.value}: {error}")

    @orders.subscribe(group="billing", ack="manual", concurrency=4, on_ack=on_ack, on_dead=on_dead)
    def bill(order: int, delivery: lakelog.Delivery[int]) -> None:
        if order == 1:
            delivery.ack()
        elif order == 2:
            delivery.fail("never")
        elif order == 3:
            delivery.discard("no")
        else:
            delivery.nack(delay=10, reason="later")

    orders.publish_many([1, 2, 3, 4])
    result = lakelog_memory.drain(bill)
    assert (result.acked, result.failed, result.dead, result.discarded) == (1, 2, 1, 1)
    assert sorted(told) == ["acked 1", "dead 2: never"]
    assert lakelog_memory.group("billing").lag() == 1


def test_a_handler_that_sleeps_beyond_its_lease_loses_the_message(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    attempts: list[int] = []

    @orders.subscribe(group="billing", lease=30)
    def bill(order: int, delivery: lakelog.Delivery[int]) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            lakelog_memory.clock.advance(seconds=31)

    orders.publish(1)
    assert lakelog_memory.drain(bill).acked == 1
    assert attempts == [1, 2]


def test_many_messages_of_many_keys_keep_their_order(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    orders.create(partitions=4)
    seen: dict[int, list[int]] = {}

    @orders.subscribe(group="billing", concurrency=16)
    async def bill(order: list[int]) -> None:
        await asyncio.sleep(0)
        seen.setdefault(order[0], []).append(order[1])

    orders.publish_many([lakelog.Outgoing([number % 7, number], key=str(number % 7)) for number in range(500)])
    assert lakelog_memory.drain(bill).acked == 500
    assert all(numbers == sorted(numbers) for numbers in seen.values()) and len(seen) == 7
