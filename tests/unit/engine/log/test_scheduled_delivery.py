"""The delivery of delayed messages, and what becomes of those that the log refuses then."""

from __future__ import annotations

from lakelog.errors import TopicNotFound
from lakelog.model.message import Schedule
from lakelog.model.outbox import RejectedChange, RejectedQuery, RejectionSource
from lakelog.storage.memory import MemoryStore
from tests.unit.engine.support import Clock, one_engine, text


async def test_messages_of_a_deleted_topic_are_rejected_when_due_and_published_by_a_retry() -> None:
    clock = Clock()
    async with one_engine(MemoryStore(clock)) as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        wait = Schedule(delay_ms=3_600_000)
        messages = [text(value, key=b"k", schedule=wait) for value in ("one", "two")]
        receipts = await engine.publisher.messages(scope, "orders", messages)
        await engine.topics.delete(scope, "orders")
        clock.pass_by(hours=2)
        assert await engine.scheduled_delivery.deliver_all(0) == 0
        assert engine.scheduled_delivery.refused == 2
        assert await engine.scheduled_delivery.deliver_all(0) == 0, "they are not due any more"
        listed = (await engine.rejected.list(scope, RejectedQuery())).messages
        assert [(each.id, each.raw, each.key) for each in listed] == [
            (receipt.id, value, b"k")  # type: ignore[union-attr]
            for receipt, value in zip(receipts, (b"one", b"two"), strict=True)
        ]
        assert {(each.topic, each.source, each.code) for each in listed} == {
            ("orders", RejectionSource.SCHEDULED, TopicNotFound.code)
        }
        assert "the topic was deleted" in listed[0].reason
        await engine.topics.create(scope, "orders", 1)
        assert (await engine.rejected.retry(scope, RejectedChange(topic="orders"))).changed == 2
        assert (await engine.rejected.list(scope, RejectedQuery())).messages == []
