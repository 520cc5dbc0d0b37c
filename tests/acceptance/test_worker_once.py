"""Subscriptions with `once`: the handler runs once for each value, over each transport."""

from __future__ import annotations

from typing import Any

import pytest

import lakelog
from lakelog import errors
from tests.kit.waiting import eventually


@pytest.mark.parametrize("batch", [None, 20])
def test_the_handler_runs_once_for_each_value(url: str, batch: int | None) -> None:
    with lakelog.connect(url) as log:
        topic = log.topic("orders")
        topic.create(partitions=2)
        ids = [number % 12 for number in range(36)]
        topic.publish_many([{"order": {"id": number}} for number in ids] + [{"other": 1}, "text"])
        seen: list[Any] = []

        def bill(order: Any) -> None:
            seen.append(order)

        def bill_all(orders: lakelog.Batch[Any]) -> None:
            seen.extend(orders.values)

        handler: Any = bill if batch is None else bill_all
        topic.subscribe(
            handler, group="billing", once="value.order.id", start_from="earliest", batch=batch, batch_wait=0.1
        )
        log.start()
        eventually(lambda: topic.lag("billing") == 0, within=90, what="all are finished")
        log.stop()
        numbers = sorted(order["order"]["id"] for order in seen if isinstance(order, dict) and "order" in order)
        assert numbers == list(range(12)), "also repeats that are leased together run once"
        assert len(seen) == 14, "messages without the field always run"
        counts = log.counts["orders/billing"]
        assert (counts.acked, counts.filtered, counts.unaccepted) == (14, 24, 0)


def test_a_failed_run_is_not_accepted_and_the_next_message_with_the_value_runs(url: str) -> None:
    with lakelog.connect(url) as log:
        topic = log.topic("orders")
        topic.create()
        topic.publish_many([lakelog.Outgoing(number, key="k") for number in range(3)])
        seen: list[int] = []

        @topic.subscribe(group="billing", once="key", start_from="earliest", retries=0)
        def bill(number: int) -> None:
            seen.append(number)
            if number == 0:
                raise ValueError("no")

        log.start()
        eventually(lambda: topic.lag("billing") == 0, within=90, what="all are finished")
        assert seen == [0, 1]
        # A redriven message is a repeat now.
        topic.dead_letters("billing").redrive()
        eventually(lambda: log.counts["orders/billing"].filtered == 2, within=90, what="the redriven one is filtered")
        log.stop()
        assert seen == [0, 1]


@pytest.mark.parametrize(("once", "runs"), [("headers.request", 3), (lambda value: value % 2, 2), ("value", 6)])
def test_values_of_headers_functions_and_whole_values(url: str, once: Any, runs: int) -> None:
    with lakelog.connect(url) as log:
        topic = log.topic("orders")
        topic.create()
        topic.publish_many([lakelog.Outgoing(n % 6, headers={"request": str(n % 3)}) for n in range(12)])
        seen: list[int] = []
        topic.subscribe(seen.append, group="billing", once=once, start_from="earliest", concurrency=4)
        log.start()
        eventually(lambda: topic.lag("billing") == 0, within=90, what="all are finished")
        log.stop()
        assert len(seen) == runs


@pytest.mark.parametrize("once", ["", "keys", "headers", "headers.", "value..x", "offset", 7])
def test_other_forms_of_once_are_refused(once: Any) -> None:
    with lakelog.connect("memory://") as log, pytest.raises(errors.InvalidRequest, match="once"):
        log.topic("orders").subscribe(print, group="billing", once=once)
