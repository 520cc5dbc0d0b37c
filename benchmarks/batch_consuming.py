"""The legs of consume-objects and consume-arrow: one client pulls a topic as a new group, with public calls alone.

With `immediate`, the ack of a batch goes with the call for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import lakelog
from benchmarks.harness import Measured
from benchmarks.lease_consumers import fresh_group

BATCH = 8000
"""Messages per call: four partitions with the default limit of 2,000 leased messages each."""
_WAIT_SECONDS = 5.0

Pull = Callable[[Any, int], Awaitable[None]]
"""Takes exactly that many messages from a consumer, and acks them."""


def consume(url: str, topic: str, pull: Pull, messages: int) -> Measured:
    async def leg() -> Measured:
        group = fresh_group()
        async with (
            lakelog.connect_async(url, token="") as log,
            log.consumer(topic, group=group, commit="immediate", start_from="earliest") as consumer,
        ):
            start = perf_counter()
            await pull(consumer, messages)
            return Measured(figure=messages / (perf_counter() - start))

    return asyncio.run(leg())


async def objects(consumer: lakelog.AsyncConsumer[Any], messages: int) -> None:
    """Take batches, and decode the value of every message."""
    count = total = 0
    while count < messages:
        batch = await consumer.batch(BATCH, timeout=_WAIT_SECONDS)
        assert batch, f"consumed {count} of {messages} messages"
        count += len(batch)
        total += sum([value["cents"] for value in batch.values])
    await batch.ack()
    assert count == messages and total > 0, f"consumed {count} of {messages} messages"


async def columns(consumer: lakelog.AsyncConsumer[Any], messages: int) -> None:
    """Take Arrow tables."""
    count = 0
    async for batch in consumer.arrow(BATCH, timeout=_WAIT_SECONDS):
        count += batch.table.num_rows
        if count >= messages:
            await batch.ack()
            break
    assert count == messages, f"consumed {count} of {messages} messages"
