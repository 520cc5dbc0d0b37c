"""After a standby that lacks the last writes is promoted, nothing of the lost timeline is delivered or acknowledged."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.errors import OffsetOutOfRange
from lakelog.model.fetch import FetchLimits
from lakelog.model.lease import Answered, ConsumeRequest, Verb
from lakelog.model.position import AtOffset
from tests.unit.engine.test_cell_caches import Standby, values, world


async def test_S3_what_is_published_after_a_failover_is_delivered_under_its_offsets() -> None:
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1", b"lost-2", b"lost-3")
        standby.promote()
        its.store.promoted()
        assert await its.publish(its.other, b"new-1", b"new-2", b"new-3") == [1, 2, 3]
        (lease,) = await its.consume(its.engine)
        assert values([lease]) == [(1, b"new-1"), (2, b"new-2"), (3, b"new-3")]
        assert await its.say(its.engine, lease, Verb.ACK) == Answered()
        assert await its.consume(its.other, "bob") == []


async def test_S9_a_lease_of_the_lost_timeline_is_refused() -> None:
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1")
        (lost,) = await its.consume(its.engine)
        standby.promote()
        its.store.promoted()
        await its.publish(its.other, b"new-1")
        assert await its.say(its.engine, lost, Verb.ACK) != Answered()
        assert values(await its.consume(its.engine)) == [(1, b"new-1")]


async def test_S8_no_token_of_the_lost_timeline_is_given_out_again() -> None:
    """The owner of the lost lease would ack another message with it."""
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1")
        (lost,) = await its.consume(its.engine)
        standby.promote()
        its.store.promoted()
        await its.publish(its.other, b"new-1")
        (lease,) = await its.consume(its.engine)
        assert list(lease.offsets) == list(lost.offsets) == [1]
        assert lease.token > lost.token
        assert await its.say(its.engine, lost, Verb.ACK) != Answered()
        assert await its.say(its.engine, lease, Verb.ACK) == Answered()


async def test_S9_a_decision_about_a_lost_row_is_never_written_although_its_version_fits() -> None:
    """The server has not noticed the failover: only the nonce of the row tells the two versions apart."""
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1", b"lost-2")
        (lost,) = await its.consume(its.engine, count=1)
        standby.promote()
        await its.publish(its.other, b"new-1", b"new-2")
        (lease,) = await its.consume(its.other, "bob", count=2)
        assert await its.say(its.engine, lost, Verb.ACK) != Answered()
        assert await its.say(its.other, lease, Verb.ACK, "bob") == Answered()


async def test_a_group_beyond_the_new_end_is_refused_until_it_is_moved() -> None:
    """The catalog remembers its start in messages that the cell lost. New messages must not be skipped silently."""
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1", b"lost-2", b"lost-3")
        late = ConsumeRequest(topic="orders", group="late", owner="ann", max_messages=10, start_from="latest")
        assert (await its.engine.leases.consume(its.scope, late)).leases == []
        standby.promote()
        its.store.promoted()
        for values_ in ((), (b"new-1", b"new-2", b"new-3", b"new-4", b"new-5")):
            await its.publish(its.other, *values_)
            with pytest.raises(OffsetOutOfRange, match="offset 4 of topic 'orders', partition 0, and a failover lost"):
                await its.engine.leases.consume(its.scope, late)
        group = await its.engine.group_directory.resolve(its.scope, "late", create=False)
        await its.engine.groups.seek(its.scope, group.name, "orders", AtOffset(offset=1))
        found = (await its.engine.leases.consume(its.scope, late)).leases
        assert values(list(found)) == [(number, b"new-%d" % number) for number in range(1, 6)]


async def test_a_reader_beyond_the_new_end_is_refused() -> None:
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1", b"lost-2", b"lost-3")
        waiting = asyncio.create_task(
            its.engine.fetcher.fetch(its.scope, "orders", 0, AtOffset(offset=4), FetchLimits(wait_seconds=20))
        )
        await asyncio.sleep(0)
        standby.promote()
        its.store.promoted()
        with pytest.raises(OffsetOutOfRange):
            await waiting
        with pytest.raises(OffsetOutOfRange):
            await its.engine.fetcher.fetch(its.scope, "orders", 0, AtOffset(offset=3))
