"""The leg that consume-objects and consume-arrow share: one client works off a topic as a new group."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.harness import Measured
from benchmarks.lease_consumers import Consumer, Look, fresh_group, transport_to

BATCH = 8000
"""Messages of a call: four partitions, of which a group by default has at most 2,000 each in hand."""


def consume(url: str, topic: str, look: Look, messages: int) -> Measured:
    async def leg() -> Measured:
        async with transport_to(url) as transport:
            group = fresh_group()
            consumer = Consumer(transport=transport, topic=topic, group=group, batch=BATCH, wait_seconds=5.0)
            start = perf_counter()
            await consumer.run(look, messages)
            return Measured(figure=messages / (perf_counter() - start))

    return asyncio.run(leg())
