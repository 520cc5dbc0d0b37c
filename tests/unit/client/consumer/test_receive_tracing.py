"""Spans of pull consumers: one for each call that returned messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakelog
from tests.kit.spans import Spans, attributes_of, id_of, parent_of, recorded_spans

COMMON = {
    "messaging.system": "lakelog",
    "messaging.operation.name": "receive",
    "messaging.operation.type": "receive",
}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recorded_spans(monkeypatch) as spans:
        yield spans


def test_each_call_that_returns_messages_has_a_span_with_links_to_their_publishes(spans: Spans) -> None:
    with lakelog.connect("memory://received") as log:
        orders = log.topic("orders")
        orders.create()
        receipt = orders.publish("a")
        orders.publish_many(["b", "c"])
        orders.publish("d")
        with (
            spans.tracer.start_as_current_span("job") as job,
            log.consumer("orders", group="billing", start_from="earliest", prefetch=0) as consumer,
        ):
            message = consumer.next(timeout=10)
            assert message is not None
            message.ack()
            assert len(consumer.batch(2, timeout=10, least=2)) == 2
            table = next(iter(consumer.arrow(timeout=10)))
            assert len(table) == 1
            # A call without messages has no span.
            assert consumer.next(timeout=0) is None and not consumer.batch(1, timeout=0)
    one, many, last = spans.named("publish orders")
    single, batch, columns = spans.named("receive orders")
    place = {"messaging.destination.name": "orders", "messaging.consumer.group.name": "billing"}
    assert attributes_of(single) == {
        **COMMON,
        **place,
        "messaging.message.id": receipt.id,
        "messaging.destination.partition.id": "0",
        "lakelog.message.offset": 0,
    }
    assert attributes_of(batch) == {**COMMON, **place, "messaging.batch.message_count": 2}
    assert attributes_of(columns) == {**COMMON, **place, "messaging.batch.message_count": 1}
    for span, publish in ((single, one), (batch, many), (columns, last)):
        assert span.kind.name == "CLIENT" and parent_of(span) == job.get_span_context().span_id
        # The messages of one call are published by one span.
        assert [link.context.span_id for link in span.links] == [id_of(publish)]


def test_messages_of_several_topics_have_one_span_without_a_destination(spans: Spans) -> None:
    with lakelog.connect("memory://received-topics") as log:
        for name in ("a", "b"):
            topic = log.topic(name)
            topic.create()
            topic.publish(name)
        with log.consumer("a", "b", start_from="earliest") as consumer:
            assert len(consumer.batch(2, timeout=10, least=2)) == 2
    (received,) = spans.named("receive")
    assert attributes_of(received) == {**COMMON, "messaging.batch.message_count": 2}
    assert len(received.links) == 2
