"""A relative expiry counts from the database's time, however wrong the clock of the client or of the server is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import lakelog
from lakelog.client._async.http import _message_shape
from lakelog.client.embedding import engine as hub
from lakelog.errors import InvalidRequest
from lakelog.model.message import Message
from lakelog.storage.memory import MemoryStore

HOUR = timedelta(hours=1)
SLACK = timedelta(seconds=30)
EXPIRES = timedelta(minutes=5)


@pytest.mark.parametrize("skew", [-HOUR, HOUR])
def test_every_way_to_publish_adds_it_to_the_time_of_the_database(
    monkeypatch: pytest.MonkeyPatch, skew: timedelta
) -> None:
    """The engine and the client share a process here: to the database, the clock of both is an hour off."""
    monkeypatch.setattr(hub, "MemoryStore", lambda _: MemoryStore(lambda: datetime.now(UTC) + skew))
    with lakelog.connect("memory://") as log:
        topic = log.topic("orders")
        topic.create()
        topic.publish(1, expires=EXPIRES)
        topic.publish(2, expires=EXPIRES, idempotency_key="once")
        outgoing = lakelog.Outgoing(3, expires=EXPIRES)
        topic.publish_many([outgoing, outgoing, lakelog.Outgoing(4, expires=EXPIRES, idempotency_key="twice")])
        with topic.producer() as producer:
            producer.send(5, expires=EXPIRES, key=b"k")
            producer.send(6)
        messages = list(topic.read())
    assert len(messages) == 7
    for message in messages:
        if message.value == 6:
            assert message.expires_at is None
        else:
            assert message.expires_at is not None
            assert abs(message.expires_at - message.appended_at - EXPIRES) < SLACK, message.value


async def test_an_async_producer_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MemoryStore", lambda _: MemoryStore(lambda: datetime.now(UTC) + HOUR))
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("orders")
        await topic.create()
        async with topic.producer() as producer:
            await producer.send(1, expires=EXPIRES, key=b"k")
        (message,) = [each async for each in topic.read()]
    assert message.expires_at is not None
    assert abs(message.expires_at - message.appended_at - EXPIRES) < SLACK


def test_a_request_has_the_duration_or_the_time_that_the_caller_gave() -> None:
    """Neither is converted to the other, which would bring the client's clock in."""
    at = datetime(2030, 1, 1, tzinfo=UTC)
    relative, absolute = (
        _message_shape(Message(value=b"v", expires_ms=7)),
        _message_shape(Message(value=b"v", expires_at=at)),
    )
    assert (relative.expires_ms, relative.expires_at) == (7, None)
    assert (absolute.expires_ms, absolute.expires_at) == (None, at)


@pytest.mark.parametrize("expires", [timedelta.max, timedelta(days=365 * 9000)])
def test_an_expiry_beyond_all_calendars_is_refused(expires: timedelta) -> None:
    with lakelog.connect("memory://") as log:
        topic = log.topic("orders")
        topic.create()
        with pytest.raises(InvalidRequest, match="year 9999"):
            topic.publish(1, expires=expires)
        with topic.producer() as producer, pytest.raises(InvalidRequest, match="year 9999"):
            producer.send(1, expires=expires)
