"""Retention cuts messages while they are delivered: the owner gets the rest and keeps it."""

from __future__ import annotations

from msgspec.structs import replace

from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

ASK = ConsumeRequest(topic="orders", group="billing", owner="ann", max_messages=9, start_from="earliest")


async def test_S8_a_lease_whose_first_messages_were_cut_keeps_the_others_of_their_keys() -> None:
    """The server knows the log, but not how far it was cut, and did not read the messages itself."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        topic = await one.topics.create(scope, "orders", partitions=1)
        for value in "abc":
            await publish(one, scope, "orders", text(value, key=b"k"))
        first = (await one.leases.consume(scope, ASK)).leases[0]
        assert list(first.offsets) == [0, 1, 2]
        assert not (await other.leases.consume(scope, ASK)).leases
        back = LeaseAnswer(verb=Verb.RELEASE, partition=0, token=first.token, offsets=((0, 2),))
        assert await other.leases.answer(scope, "orders", "billing", "ann", [back]) == [Answered()]
        await store.log_start_raise([(topic.pid(0), 1)])
        told = (await other.leases.consume(scope, ASK)).leases[0]
        assert list(told.offsets) == [1, 2]
        await other._journals.drain()
        ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=told.token, offsets=((1, 2),))
        assert await one.leases.answer(scope, "orders", "billing", "ann", [ack]) == [Answered()]
        progress = (await one.groups.lag(scope, "billing"))[0]
        assert (progress.committed, progress.cut) == (3, 1)


async def test_S16_the_committed_offset_that_is_told_does_not_fall_when_what_was_cut_is_handed_out() -> None:
    """The server that decides does not know of the cut; the server that reports the lag does."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        topic = await one.topics.create(scope, "orders", partitions=1)
        await publish(one, scope, "orders", *map(text, "abc"))
        first = (await one.leases.consume(scope, replace(ASK, max_messages=1))).leases[0]
        ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=first.token, offsets=(0,))
        assert await one.leases.answer(scope, "orders", "billing", "ann", [ack]) == [Answered()]
        await store.log_start_raise([(topic.pid(0), 3)])
        before = (await other.groups.lag(scope, "billing"))[0]
        assert (before.log_start, before.cut, before.lag) == (3, 2, 0)
        second = (await one.leases.consume(scope, replace(ASK, max_messages=1))).leases[0]
        assert list(second.offsets) == [1]
        after = (await other.groups.lag(scope, "billing"))[0]
        assert (after.leased, after.cut) == (1, 1)
        assert before.committed <= after.committed == 1
