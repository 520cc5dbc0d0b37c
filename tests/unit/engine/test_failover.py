"""After a standby that lacks the last writes is promoted, nothing of the lost timeline is delivered or acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.engine import Engine
from lakelog.errors import OffsetOutOfRange
from lakelog.model.fetch import FetchLimits
from lakelog.model.lease import Answered, ConsumeRequest, Verb
from lakelog.model.position import AtOffset
from tests.kit.waiting import eventually_async
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


async def test_S1_the_loss_is_counted_although_the_log_has_grown_past_it(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as its:
        await its.publish(its.other, b"m1")
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-2", b"lost-3")
        await its.publish(its.other, b"lost-4")
        await its.publish(its.engine, b"lost-5")
        standby.promote()
        its.store.promoted()
        await its.publish(its.other, *[b"new"] * 10)
        await eventually_async(lambda: its.engine.losses.total + its.other.losses.total == 4)
        assert its.engine.losses.by_partition == {its.topic.pid(0): 3}
        assert its.other.losses.by_partition == {its.topic.pid(0): 1}
        first, last = (f"{its.topic.incarnation}-0-{offset}" for offset in (2, 5))
        assert f"lost 3 messages that this server had acknowledged: {first} to {last}." in caplog.text


async def test_a_publish_that_began_before_the_failover_and_was_written_after_it_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as its:
        right = its.store.append

        async def append(appends: Any) -> Any:
            monkeypatch.setattr(its.store, "append", right)
            its.store.promoted()
            return await right(appends)

        monkeypatch.setattr(its.store, "append", append)
        assert await its.publish(its.engine, b"new-1") == [1]
        await asyncio.sleep(0.01)
        assert its.engine.losses.total == 0
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-2")
        standby.promote()
        its.store.promoted()
        await eventually_async(lambda: its.engine.losses.total == 1)


async def test_a_failover_without_a_loss_reports_none() -> None:
    async with world() as its:
        its.store.promoted()
        await its.publish(its.engine, b"new-1")
        its.store.promoted()
        await asyncio.sleep(0.01)
        assert its.engine.losses.total == 0


@pytest.mark.parametrize("is_new", [False, True], ids=["another server", "a restarted server"])
async def test_a_group_in_lost_messages_is_refused_by_every_server(
    is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has grown past the position when the server first looks: only stored facts show the loss."""
    monkeypatch.setattr("lakelog.engine.leasing.partition_stop.PAUSE_SECONDS", 0.0)
    async with world() as its:
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1", b"lost-2", b"lost-3")
        late = ConsumeRequest(topic="orders", group="late", owner="ann", max_messages=10, start_from="latest")
        assert (await its.engine.leases.consume(its.scope, late)).leases == []
        standby.promote()
        its.store.promoted()
        await its.publish(its.engine, *[b"new"] * 10)
        server = Engine(its.engine.catalog, {0: its.store}) if is_new else its.other
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match="offset 4 of topic 'orders', partition 0, and a failover lost"):
                await server.leases.consume(its.scope, late)
        # A group that starts at the end afterwards has lost nothing.
        later = ConsumeRequest(topic="orders", group="later", owner="ann", max_messages=10, start_from="latest")
        assert (await server.leases.consume(its.scope, later)).leases == []
        await its.publish(its.engine, b"newest")
        assert values(list((await server.leases.consume(its.scope, later)).leases)) == [(11, b"newest")]
        await its.engine.groups.seek(its.scope, "late", "orders", AtOffset(offset=1))
        server.group_directory.forget(None)
        assert len(values(list((await server.leases.consume(its.scope, late)).leases))) == 10


async def test_a_seek_into_lost_messages_is_refused_until_the_next_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.engine.leasing.partition_stop.PAUSE_SECONDS", 0.0)
    async with world() as its:
        await its.consume(its.engine)
        standby = Standby(its.store)
        await its.publish(its.engine, b"lost-1", b"lost-2", b"lost-3")
        await its.engine.groups.seek(its.scope, "billing", "orders", AtOffset(offset=3))
        standby.promote()
        its.store.promoted()
        await its.publish(its.other, *[b"new"] * 10)
        with pytest.raises(OffsetOutOfRange, match="offset 3"):
            await its.consume(its.other)
        await its.engine.groups.seek(its.scope, "billing", "orders", AtOffset(offset=1))
        its.other.group_directory.forget(None)
        assert len(values(await its.consume(its.other))) == 10


async def test_S10_a_repeated_ack_waits_for_the_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ack is visible, but the wait for the standby was cancelled, or PostgreSQL restarted."""
    async with world() as its:
        await its.publish(its.engine, b"m1")
        (lease,) = await its.consume(its.engine)
        assert await its.say(its.engine, lease, Verb.ACK) == Answered()
        confirmed = asyncio.Event()
        monkeypatch.setattr(its.store.timelines, "await_standby", confirmed.wait)
        repeated = asyncio.create_task(its.say(its.other, lease, Verb.ACK))
        await asyncio.sleep(0.02)
        assert not repeated.done()
        confirmed.set()
        assert await repeated == Answered()
