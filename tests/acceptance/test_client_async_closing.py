"""A closed client refuses calls, and has published the messages of its producers: the same on every transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakelog
from lakelog.client.values import Outgoing
from lakelog.errors import Closed

Verb = Callable[[lakelog.AsyncLakelog, lakelog.AsyncTopic[Any]], Any]

VERBS: dict[str, Verb] = {
    "topics": lambda log, topic: log.topics(),
    "groups": lambda log, topic: log.groups(),
    "describe": lambda log, topic: topic.describe(),
    "create": lambda log, topic: topic.create(if_missing=True),
    "delete": lambda log, topic: topic.delete(),
    "publish": lambda log, topic: topic.publish("x"),
    "publish with a key": lambda log, topic: topic.publish("x", idempotency_key="k"),
    "publish many": lambda log, topic: topic.publish_many(["x"]),
    "publish many with keys": lambda log, topic: topic.publish_many([Outgoing("x", idempotency_key="k")]),
    "fetch": lambda log, topic: topic.fetch(),
    "lag": lambda log, topic: topic.lag("g"),
    "seek": lambda log, topic: topic.seek("g", to="earliest"),
    "skip": lambda log, topic: topic.skip("g", partition=0, offset=1),
    "describe group": lambda log, topic: log.group("g").describe(),
    "dead letters": lambda log, topic: log.group("g").dead_letters().find("1-0-0"),
    "runs": lambda log, topic: log.pipelines.list(),
    "start": lambda log, topic: log.start(),
    "run": lambda log, topic: log.run(),
}


async def test_every_verb_of_a_closed_client_is_refused(url: str) -> None:
    log = lakelog.connect_async(url)
    topic = log.topic("t")
    await topic.create()
    producer = topic.producer()
    await producer.send("x")
    await producer.flush()
    unused = topic.producer()
    await log.close()
    for name, verb in VERBS.items():
        with pytest.raises(Closed, match=r"This client is closed\. Call lakelog\.connect\(\) again\."):
            await verb(log, topic)
            raise AssertionError(name)
    for each in (producer, unused):
        with pytest.raises(Closed, match="This client is closed"):
            await each.send("x")
    for make in (lambda: log.topic("t"), topic.producer, lambda: topic.subscribe(print, group="g")):
        with pytest.raises(Closed, match="This client is closed"):
            make()
    with pytest.raises(Closed):
        async for _ in topic.read():
            pass
    with pytest.raises(Closed):
        async with log:
            pass
    await log.close()


async def test_closing_publishes_what_producers_took(url: str) -> None:
    async with lakelog.connect_async(url) as reader:
        await reader.topic("kept").create()
        log = lakelog.connect_async(url)
        producer = log.topic("kept").producer(linger=3600)
        for number in range(10):
            await producer.send(number)
        await log.close()
        await producer.close()
        assert [message.value async for message in reader.topic("kept").read()] == list(range(10))
