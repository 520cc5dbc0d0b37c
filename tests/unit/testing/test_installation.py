"""The installation for tests: clients of the program, ordered failures, and assertions about published messages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import pytest

import lakelog
from lakelog.errors import OutcomeUnknown, TopicNotFound, Unavailable
from lakelog.testing import MemoryInstallation


@dataclass
class Invoice:
    account: str


def test_clients_made_in_a_test_use_the_installation(lakelog_memory: MemoryInstallation) -> None:
    assert os.environ["LAKELOG_URL"] == lakelog_memory.url
    with lakelog.connect() as log:
        log.topic("orders").publish({"total": 1})
    lakelog_memory.assert_published("orders", count=1)


def test_clients_of_the_program_are_attached_and_given_back() -> None:
    log = lakelog.connect("memory://")
    orders = log.topic("orders")
    orders.create(partitions=3)
    orders.publish({"total": 1}, partition=2)
    for _ in range(2):
        with MemoryInstallation() as installation:
            installation.attach(log, log)
            orders.publish({"total": 2})
            assert [message.value for message in installation.published("orders")] == [{"total": 2}]
    assert orders.describe().partitions == 3
    assert [message.value for message in orders.read()] == [{"total": 1}]
    orders.publish({"total": 3}, partition=2)
    log.close()


@pytest.mark.parametrize("url", ["memory://", "http://127.0.0.1:9"])
def test_drain_attaches_the_client_of_a_handler(url: str) -> None:
    log = lakelog.connect(url, token="lkl_none", timeout=1.0)
    orders, invoices = log.topic("orders"), log.topic("invoices")

    @orders.subscribe(group="billing")
    def bill(order: dict[str, int]) -> None:
        invoices.publish({"sum": order["total"]})

    for total in (1, 2):
        with MemoryInstallation() as installation:
            installation.topic("orders").publish({"total": total})
            installation.drain(bill)
            installation.assert_published("invoices", count=1, value={"sum": total})
    # The client has its own connection again: an empty engine, or a server that does not exist.
    with pytest.raises((TopicNotFound, Unavailable)):
        invoices.publish({"sum": 0})
    log.close()


def test_the_next_runs_of_a_handler_fail(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    seen: list[int] = []
    orders.subscribe(seen.append, group="billing", retries=3)
    orders.publish(1)
    lakelog_memory.fail_next(seen.append, error=ConnectionError("away"), times=2)
    for _ in range(2):
        result = lakelog_memory.drain()
        assert [repr(error) for error in result.errors] == ["ConnectionError('away')"]
        lakelog_memory.clock.advance(minutes=5)
    assert seen == []
    lakelog_memory.drain()
    assert seen == [1]


def test_the_next_publishes_fail(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    lakelog_memory.fail_next("orders", error=OutcomeUnknown("lost"), times=1)
    assert not orders.publish(1, idempotency_key="one").duplicate
    lakelog_memory.fail_next("orders", error=TopicNotFound("gone"))
    with pytest.raises(TopicNotFound, match="gone"):
        orders.publish(2, idempotency_key="two")
    lakelog_memory.fail_next("orders")
    orders.publish(3)
    assert [message.value for message in lakelog_memory.published("orders")] == [1, 3]


def test_a_deleted_topic_stays_deleted(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    orders.publish(1)
    orders.delete()
    with pytest.raises(TopicNotFound):
        orders.publish(2)


def test_a_topic_can_be_created_with_settings(lakelog_memory: MemoryInstallation) -> None:
    orders = lakelog_memory.topic("orders")
    orders.create(partitions=4)
    orders.publish(1)
    assert orders.describe().partitions == 4


def test_assertions_list_what_was_published(lakelog_memory: MemoryInstallation) -> None:
    invoices = lakelog_memory.topic("invoices", type=Invoice)
    with pytest.raises(AssertionError, match="at least 1 message in topic 'invoices', found 0; the topic is empty"):
        lakelog_memory.assert_published("invoices")
    invoices.publish_many([Invoice("a"), Invoice("b")])
    found = lakelog_memory.assert_published("invoices", count=1, value=Invoice("b"))
    assert [message.offset for message in found] == [1]
    lakelog_memory.assert_published("invoices", count=0, where=lambda message: message.value["account"] == "c")
    with pytest.raises(AssertionError) as failed:
        lakelog_memory.assert_published("invoices", count=3)
    assert str(failed.value).splitlines() == [
        "expected 3 messages in topic 'invoices', found 2. The topic has:",
        "  0:0 key=None value={'account': 'a'}",
        "  0:1 key=None value={'account': 'b'}",
    ]
    invoices.publish_many([Invoice("c")] * 30)
    with pytest.raises(AssertionError, match=r"(?s)1 matching message in.*and 12 more"):
        lakelog_memory.assert_published("invoices", count=1, key="none")


def test_installations_are_separate_and_can_be_closed_twice() -> None:
    with MemoryInstallation() as one, MemoryInstallation() as other:
        one.topic("orders").publish(1)
        assert other.published("orders") == []
        one.close()
    one.close()


def test_delayed_messages_are_published_when_the_clock_reaches_their_time(lakelog_memory: MemoryInstallation) -> None:
    topic, seen = lakelog_memory.topic("orders"), list[object]()
    topic.subscribe(seen.append, group="billing")
    topic.publish("later", delay=timedelta(hours=2))
    topic.publish("soon", deliver_at=lakelog_memory.clock.now() + timedelta(hours=1))
    cancelled = topic.publish("never", delay=60)
    assert topic.cancel(cancelled.id)
    lakelog_memory.drain()
    assert (seen, len(topic.scheduled())) == ([], 2)
    lakelog_memory.clock.advance(hours=1)
    lakelog_memory.drain()
    assert seen == ["soon"]
    lakelog_memory.clock.advance(hours=1)
    lakelog_memory.assert_published("orders", count=2)
    assert lakelog_memory.drain().acked == 1
