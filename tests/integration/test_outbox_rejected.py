"""Rejected messages are listed, published again once, and discarded; messages are found by their ids."""

from __future__ import annotations

import lakelog
from lakelog.storage.postgres import install_outbox
from tests.integration.outbox_kit import opened, poll_until_idle


async def test_rejected_messages_are_published_when_the_cause_is_fixed(database: str) -> None:
    async with opened(database, database) as log, lakelog.connect_async(database) as client:
        relay = log.relay()
        late = client.topic("late")
        async with log.caller.transaction():
            first = await late.publish({"total": 1}, key="a", headers={"h": "1"}, transaction=log.caller)
            second = await late.publish(b"\xff", key="a", transaction=log.caller)
            third = await client.topic("gone").publish("x", key="a", transaction=log.caller)
        assert (await client.message(first.id)).state == "unknown"
        assert await poll_until_idle(relay) == 3
        assert (await client.message(first.id)).state == "rejected"
        listed = await client.rejected.list()
        assert [(each.id, each.topic, each.code) for each in listed] == [
            (first.id, "late", "topic_not_found"),
            (second.id, "late", "topic_not_found"),
            (third.id, "gone", "topic_not_found"),
        ]
        assert (listed[0].raw, listed[0].key, listed[0].headers) == (b'{"total":1}', b"a", {"h": "1"})
        refused = await client.rejected.retry([first.id])
        assert (refused.changed, refused.refused) == (0, 1)
        topic = await log.create("late")
        assert (await client.rejected.retry(topic="late")).changed == 2
        assert (await client.rejected.retry([first.id])).changed == 0
        assert (await client.rejected.discard([third.id, "missing"])).changed == 1
        assert await client.rejected.list() == []
        assert [message.value for message in await log.messages(topic)] == [b'{"total":1}', b"\xff"]
        await relay.close()
        again = log.relay()
        assert await again.poll() == 0, "what was rejected once is not looked at again"
        await again.close()


async def test_messages_are_found_by_their_ids(database: str, second_database: str) -> None:
    """With two cells. A message of another environment is unknown."""
    async with (
        opened(database, second_database, {"second": second_database}) as log,
        lakelog.connect_async(database, cells={"second": second_database}) as client,
    ):
        await log.create(partitions=2)
        relay = log.relay()
        orders = client.topic("orders")
        direct = await orders.publish("direct", partition=1)
        async with log.caller.transaction():
            receipts = await orders.publish_many(
                [lakelog.Outgoing(f"{number}", partition=number % 2) for number in range(6)], transaction=log.caller
            )
        await poll_until_idle(relay)
        found = [await client.message(each.id) for each in receipts]
        assert [(each.state, each.partition, each.offset) for each in found] == [
            ("published", 0, 0),
            ("published", 1, 1),
            ("published", 0, 1),
            ("published", 1, 2),
            ("published", 0, 2),
            ("published", 1, 3),
        ]
        known = await client.message(direct.id)
        assert (known.state, known.partition, known.offset) == ("published", 1, 0)
        assert (await client.message(direct.id + "7")).state == "unknown"
        await install_outbox(second_database, project="other")
        await log.publish("orders", "foreign")
        await relay.close()
        foreign = log.relay()
        await poll_until_idle(foreign)
        assert (await client.message(receipts[0].id)).state == "unknown"
        await foreign.close()
