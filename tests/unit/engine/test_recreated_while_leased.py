"""A topic or a group that is deleted and made again while its messages are leased: old answers reach nothing new."""

from __future__ import annotations

import pytest

from lakelog.engine.consuming import Answer, Answered, ConsumeAsk, Verb
from lakelog.errors import LeaseLost
from lakelog.model.group import GroupWish
from lakelog.model.position import Earliest
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

ASK = ConsumeAsk(topic="orders", group="billing", owner="ann", max_messages=1, wish=GroupWish(start=Earliest()))


@pytest.mark.parametrize("recreated", ["topic", "group"])
@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.EXTEND])
async def test_S9_an_answer_to_what_was_leased_before_is_refused(recreated: str, verb: Verb) -> None:
    """The same owner has the message at the same place again, by a new lease."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", partitions=1)
        await publish(one, scope, "orders", text("old"))
        before = (await one.leases.consume(scope, ASK)).leases[0]
        if recreated == "topic":
            await other.topics.delete(scope, "orders")
            await other.topics.create(scope, "orders", partitions=1)
            await publish(other, scope, "orders", text("new"))
        else:
            await other.groups.delete(scope, "billing")
        now = (await other.leases.consume(scope, ASK)).leases[0]
        assert (now.partition, now.offsets) == (before.partition, before.offsets)
        late = Answer(verb=verb, partition=0, token=before.token, ranges=[(0, 1)])
        # This one may not have heard of it, and answer for what was deleted.
        await one.leases.answer(scope, "orders", "billing", "ann", [late])
        (answer,) = await other.leases.answer(scope, "orders", "billing", "ann", [late])
        assert isinstance(answer, LeaseLost)
        ack = Answer(verb=Verb.ACK, partition=0, token=now.token, ranges=[(0, 1)])
        (answer,) = await other.leases.answer(scope, "orders", "billing", "ann", [ack])
        assert answer == Answered()
