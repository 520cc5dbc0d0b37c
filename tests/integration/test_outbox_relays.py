"""The relays of a process find outboxes by themselves, and one process relays each of them."""

from __future__ import annotations

import asyncio
import time

from lakelog.maintenance import OutboxRelays
from lakelog.storage.postgres import PostgresOutbox
from tests.integration.outbox_kit import OutboxLog, opened


async def moved(log: OutboxLog, count: int, within: float = 60.0) -> None:
    """Wait until partition 0 of the topic has this many messages."""
    end = time.monotonic() + within
    while (await log.engine.topics.describe(log.scope, "orders")).heads[0].next_offset < count:
        assert time.monotonic() < end, "the messages were not moved in time"
        await asyncio.sleep(0.01)


async def test_the_outbox_in_the_database_of_the_log_is_relayed(database: str, second_database: str) -> None:
    """A database that is configured and has no outbox, or is away, does not matter."""
    async with opened(database, database) as log:
        topic = await log.create()
        away = PostgresOutbox("postgresql://unknown@127.0.0.1:1/none")
        relays = [
            OutboxRelays(log.engine, [PostgresOutbox(second_database), away], PostgresOutbox(database))
            for _ in range(2)
        ]
        for each in relays:
            each.start()
        await log.publish("orders", "0")
        await moved(log, 1)
        took: list[float] = []
        for number in range(1, 11):
            began = time.monotonic()
            await log.publish("orders", f"{number}")
            await moved(log, number + 1)
            took.append(time.monotonic() - began)
        print(f"moved after {sorted(took)[5] * 1000:.0f} ms (median), {max(took) * 1000:.0f} ms (longest)")
        await relays[0].stop()
        await log.publish("orders", "11")
        await moved(log, 12)
        await relays[1].stop()
        assert await log.values(topic) == [str(number) for number in range(12)]
