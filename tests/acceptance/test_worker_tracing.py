"""Traces of deliveries: one trace from the publish through retries, the dead letter and its redrive to the ack."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace

import lakelog
from lakelog.client.worker.handlers import BatchHandler
from tests.kit.spans import Spans, attributes_of, id_of, parent_of, recorded_spans
from tests.kit.waiting import eventually, eventually_async

PROCESS = "process orders"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recorded_spans(monkeypatch) as spans:
        yield spans


def test_one_trace_from_publish_through_redrive_to_ack(
    spans: Spans, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="lakelog")
    repaired: list[bool] = []
    with lakelog.connect(url) as log:
        orders = log.topic("orders")
        orders.create()

        @orders.subscribe(group="billing", start_from="earliest", retries=lakelog.Fixed(max=1, seconds=0.05))
        def bill(order: dict[str, int]) -> None:
            if not repaired:
                raise ValueError("no address")
            with spans.tracer.start_as_current_span("charge"):
                pass

        receipt = orders.publish({"total": 1})
        log.start()
        eventually(lambda: len(spans.named(PROCESS)) == 2, what="the message is dead")
        repaired.append(True)
        assert orders.dead_letters("billing").redrive().redriven == 1
        eventually(lambda: len(spans.named(PROCESS)) == 3, what="the message is acked")
        log.stop()

    (publish,) = spans.named("publish orders")
    first, retry, redriven = spans.named(PROCESS)
    for span in (first, retry, redriven):
        assert parent_of(span) == id_of(publish) and span.kind.name == "CONSUMER"
    assert [[link.context.span_id for link in span.links] for span in (first, retry, redriven)] == [
        [],
        [id_of(publish)],
        [id_of(publish)],
    ]
    assert attributes_of(first) == {
        "messaging.system": "lakelog",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": receipt.id,
        "messaging.destination.partition.id": "0",
        "lakelog.message.offset": 0,
        "lakelog.attempt": 1,
        "lakelog.answer": "nack",
        "error.type": "ValueError",
    }
    assert first.status.description == "no address" and attributes_of(retry)["lakelog.attempt"] == 2
    assert attributes_of(redriven)["lakelog.lineage"] == f"{receipt.id}#1" and redriven.status.is_unset
    events = [[event.name for event in span.events] for span in (first, retry, redriven)]
    assert events == [["nack"], ["nack", "dead_letter"], ["ack"]]
    (charge,) = spans.named("charge")
    assert parent_of(charge) == id_of(redriven)


async def test_handlers_of_an_event_loop_run_in_the_span_of_the_delivery(spans: Spans, url: str) -> None:
    seen: list[int] = []
    async with lakelog.connect_async(url) as log:
        orders, invoices = log.topic("orders"), log.topic("invoices")
        await orders.create()
        await invoices.create()

        @orders.subscribe(group="billing", start_from="earliest")
        async def bill(order: str, delivery: lakelog.AsyncDelivery[Any]) -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)
            await invoices.publish(order)
            await delivery.ack()

        with spans.tracer.start_as_current_span("start of the program"):
            await log.start()
        await orders.publish("a")
        await orders.publish("b", headers={"traceparent": "not a trace"})
        await eventually_async(lambda: len(spans.named(PROCESS)) == 2, what="both are acked")
    published = spans.named("publish orders")
    processed = {attributes_of(span)["messaging.message.id"]: span for span in spans.named(PROCESS)}
    a, b = (processed[attributes_of(span)["messaging.message.id"]] for span in published)
    assert parent_of(a) == id_of(published[0])
    # A header that names no span starts a trace, and the span in which the program started is not its parent.
    assert parent_of(b) is None
    assert sorted(seen) == sorted([id_of(a), id_of(b)])
    assert {parent_of(span) for span in spans.named("publish invoices")} == {id_of(a), id_of(b)}


async def test_a_batch_handler_has_a_span_with_a_link_to_each_publish(spans: Spans) -> None:
    async with lakelog.connect_async("memory://traced-batches") as log:
        orders = log.topic("orders")
        await orders.create()
        seen: list[int] = []

        @orders.subscribe(group="billing", start_from="earliest", batch=3, batch_wait=20.0)
        async def bill(batch: list[str]) -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)

        await orders.publish("a")
        await orders.publish_many(["b", "c"])
        await log.start()
        await eventually_async(lambda: len(spans.named(PROCESS)) == 1, what="the batch is handled")
    (process,), published = spans.named(PROCESS), spans.named("publish orders")
    assert parent_of(process) is None and seen == [id_of(process)]
    assert [link.context.span_id for link in process.links] == [id_of(span) for span in published]
    assert attributes_of(process)["messaging.batch.message_count"] == 3


async def test_the_span_of_a_batch_handler_that_cannot_start_ends(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="lakelog")
    begin = BatchHandler.begin_batch
    failures = [RuntimeError("can't start new thread")]

    def fail_once(handler: BatchHandler, *args: Any) -> Any:
        if failures:
            raise failures.pop()
        return begin(handler, *args)

    monkeypatch.setattr(BatchHandler, "begin_batch", fail_once)
    async with lakelog.connect_async("memory://batch-that-cannot-start") as log:
        orders = log.topic("orders")
        await orders.create()
        await orders.publish("a")

        @orders.subscribe(group="billing", start_from="earliest", batch=1)
        async def bill(batch: lakelog.AsyncBatch[str]) -> None: ...

        await log.start()
        await eventually_async(lambda: len(spans.named(PROCESS)) == 2, what="both spans have ended")
    failed, processed = spans.named(PROCESS)
    assert attributes_of(failed)["error.type"] == "RuntimeError" and not failed.status.is_ok
    assert "error.type" not in attributes_of(processed)
