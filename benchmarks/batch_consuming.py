"""The leg that consume-objects and consume-arrow share: one client consumes a topic as a new group."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.harness import Measured
from benchmarks.lease_consumers import Consumer, Look, fresh_group, transport_to

BATCH = 8000
"""Messages per call: four partitions with the default limit of 2,000 leased messages each."""


def consume(url: str, topic: str, look: Look, messages: int) -> Measured:
    async def leg() -> Measured:
        async with transport_to(url) as transport:
            group = fresh_group()
            consumer = Consumer(transport=transport, topic=topic, group=group, batch=BATCH, wait_seconds=5.0)
            start = perf_counter()
            await consumer.run(look, messages)
            return Measured(figure=messages / (perf_counter() - start))

    return asyncio.run(leg())
