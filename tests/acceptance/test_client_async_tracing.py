"""Traces of published messages: each way of publishing opens a span, and its context is in the messages' headers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import IdempotencyConflict, PartitionNotFound, PartlyPublished
from tests.kit.spans import Spans, attributes_of, header_of, id_of, parent_of, recorded_spans

CALLERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recorded_spans(monkeypatch) as spans:
        yield spans


async def test_a_publish_opens_a_span_below_the_callers(spans: Spans, url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create()
        with spans.tracer.start_as_current_span("checkout") as checkout:
            receipt = await topic.publish({"total": 1}, headers={"h": "1"})
        (span,) = spans.named("publish orders")
        assert span.parent == checkout.get_span_context() and span.kind.name == "PRODUCER"
        assert span.attributes == {
            "messaging.system": "lakelog",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "0",
            "messaging.message.id": receipt.id,
            "lakelog.message.offset": 0,
        }
        (message,) = (await topic.fetch()).messages
        assert dict(message.headers) == {"h": "1", "traceparent": header_of(span)}
        # Over HTTP, the server's span belongs to the same trace.
        for server in spans.named("POST /v1/topics/{topic}/messages"):
            assert parent_of(server) == id_of(span)


async def test_every_message_of_a_call_carries_the_span_of_the_call(spans: Spans, url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create(2)
        mine = lakelog.Outgoing("mine", headers={"Traceparent": CALLERS}, idempotency_key="k")
        await topic.publish_many(["a", mine, lakelog.Outgoing("b", headers={"h": "1"})])
        (span,) = spans.named("publish orders")
        assert attributes_of(span)["messaging.batch.message_count"] == 3
        found = {message.value: dict(message.headers) async for message in topic.read()}
        parent = header_of(span)
        assert found == {
            "a": {"traceparent": parent},
            "mine": {"Traceparent": CALLERS},
            "b": {"h": "1", "traceparent": parent},
        }


async def test_columns_carry_the_span_of_the_call(spans: Spans, url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create(2)
        await topic.publish_columns(pa.table({"value": ["a", "b"]}))
        headers = pa.array([None, [("h", "1")], [("traceparent", CALLERS)]], pa.map_(pa.string(), pa.string()))
        await topic.publish_columns(pa.table({"value": ["c", "d", "e"], "headers": headers}))
        first, second = map(header_of, spans.named("publish orders"))
        found = {(message.raw or b"").decode(): dict(message.headers) async for message in topic.read()}
        assert found == {
            "a": {"traceparent": first},
            "b": {"traceparent": first},
            "c": {"traceparent": second},
            "d": {"h": "1", "traceparent": second},
            "e": {"traceparent": CALLERS},
        }


async def test_each_message_of_a_producer_has_a_span(spans: Spans, url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create(2)
        async with topic.producer() as producer:
            with spans.tracer.start_as_current_span("import") as importing:
                await producer.send("a", key="k")
            await producer.send("b", headers={"h": "1"})
            await producer.send("c", headers={"traceparent": CALLERS})
        found = {message.value: message async for message in topic.read()}
        ended = {attributes_of(span)["messaging.message.id"]: span for span in spans.named("publish orders")}
        assert set(ended) == {message.id for message in found.values()}
        assert ended[found["a"].id].parent == importing.get_span_context() and ended[found["b"].id].parent is None
        assert dict(found["a"].headers) == {"traceparent": header_of(ended[found["a"].id])}
        assert dict(found["b"].headers) == {"h": "1", "traceparent": header_of(ended[found["b"].id])}
        assert dict(found["c"].headers) == {"traceparent": CALLERS}


async def test_a_failed_publish_ends_its_span_with_the_error(spans: Spans, url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create()
        with pytest.raises(PartitionNotFound):
            await topic.publish("a", partition=3)
        producer = topic.producer()
        await producer.send("a", partition=3)
        with pytest.raises(PartlyPublished):
            await producer.close()
        one, sent = spans.named("publish orders")
        for span in (one, sent):
            assert span.status.status_code.name == "ERROR"
            assert attributes_of(span)["error.type"] == "partition_not_found"


async def test_a_repeat_in_another_span_is_the_same_message(spans: Spans, url: str) -> None:
    """Two publishes of one message differ in their spans, and must not be refused for it."""
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create()
        first = await topic.publish("a", headers={"h": "1"}, idempotency_key="k")
        again = await topic.publish("a", headers={"h": "1"}, idempotency_key="k")
        assert again.id == first.id and again.duplicate
        with pytest.raises(IdempotencyConflict):
            await topic.publish("a", headers={"h": "2"}, idempotency_key="k")


async def test_a_trace_takes_no_header_from_the_caller(spans: Spans, url: str) -> None:
    """A message with as many headers as allowed is published without trace context."""
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create()
        full = {f"h{number}": "1" for number in range(64)}
        await topic.publish("a", headers=full)
        (message,) = (await topic.fetch()).messages
        assert dict(message.headers) == full


async def test_without_a_provider_nothing_is_added(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("orders")
        await topic.create()
        await topic.publish("a")
        await topic.publish_many(["b"])
        await topic.publish_columns(pa.table({"value": ["c"]}))
        async with topic.producer() as producer:
            await producer.send("d")
        assert [dict(message.headers) async for message in topic.read()] == [{}] * 4
