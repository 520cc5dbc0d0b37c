"""Failover on two real clusters with streaming replication: connections follow the promoted standby, and only it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from lakelog.batches import decode, to_messages
from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.postgres import connecting as connecting_module
from lakelog.storage.postgres import migrate, open_catalog, open_store
from lakelog.storage.postgres.connection import Database
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually, eventually_async


class Pair:
    """A primary and its standby, with a migrated database."""

    def __init__(self, primary: Cluster, standby: Cluster, name: str) -> None:
        self.primary, self.standby = primary, standby
        self._name = name

    @property
    def url(self) -> str:
        """The URL with both hosts, the primary first."""
        return f"postgresql://postgres@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/{self._name}"

    def url_of(self, cluster: Cluster) -> str:
        return cluster.url(self._name)

    def catch_up(self) -> None:
        eventually(lambda: self.standby.caught_up_with(self.primary), what="the standby has everything")

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        """What is written inside is missing on the standby, which is promoted at the end; the primary is killed."""
        self.catch_up()
        self.standby.stop()
        yield
        self.primary.kill9()
        self.standby.start()
        self.standby.promote()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Cluster() as primary:
        url = primary.create_database()
        asyncio.run(migrate(url))
        with Cluster(primary=primary) as standby:
            yield Pair(primary, standby, url.rpartition("/")[2])


@asynccontextmanager
async def engine_on(url: str) -> AsyncIterator[tuple[Engine, Scope]]:
    engine = Engine(await open_catalog(url), {0: await open_store(url)})
    await engine.start()
    try:
        yield engine, await engine.catalog.scope_create("p", "e")
    finally:
        await engine.close()


async def publish(engine: Engine, scope: Scope, *values: bytes) -> list[int]:
    sent = await engine.publisher.messages(scope, "orders", [Message(value=value) for value in values])
    return [receipt.offset for receipt in sent if not isinstance(receipt, LakelogError)]


async def consume(engine: Engine, scope: Scope, owner: str = "ann") -> list[Leased]:
    asked = ConsumeRequest(topic="orders", group="billing", owner=owner, max_messages=10, start_from="earliest")
    return list((await engine.leases.consume(scope, asked)).leases)


async def ack(engine: Engine, scope: Scope, lease: Leased, owner: str = "ann") -> object:
    answer = LeaseAnswer(verb=Verb.ACK, partition=0, token=lease.token, offsets=tuple(lease.offsets))
    return (await engine.leases.answer(scope, "orders", "billing", owner, [answer]))[0]


def values(leases: list[Leased]) -> list[tuple[int, bytes | None]]:
    return [
        (offset, to_messages(decode(piece.batch.payload))[offset - piece.batch.base].value)
        for lease in leases
        for piece in lease.pieces
        for offset in piece.offsets
    ]


async def succeeds(call: Callable[[], Awaitable[object]], *, within: float = 30.0) -> None:
    """Repeat the call until it succeeds."""
    deadline = time.monotonic() + within
    while True:
        try:
            await call()
        except (Unavailable, OutcomeUnknown):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def commits_wait(pair: Pair, admin: asyncpg.Connection) -> None:
    """Return when a commit waits for a standby. The checkpointer makes the setting known, some time after a reload."""
    cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'"
    prober = await asyncpg.connect(pair.url_of(pair.primary))

    async def one_waited() -> bool:
        probe = asyncio.create_task(prober.execute("select pg_logical_emit_message(true, 'probe', '')"))
        waited = False
        while not probe.done():
            waited = bool(await admin.fetchval(cancel)) or waited
            await asyncio.wait([probe], timeout=0.01)
        await probe
        return waited

    await eventually_async(one_waited, what="commits wait for a standby")
    await prober.close()


async def test_S3_after_a_promotion_without_the_last_writes_only_new_messages_are_delivered(
    pair: Pair, size: Size
) -> None:
    async with engine_on(pair.url) as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        await publish(engine, scope, b"m0")
        (lease,) = await consume(engine, scope)
        assert await ack(engine, scope, lease) == Answered()
        with pair.losing():
            await publish(engine, scope, b"lost-1", b"lost-2")
            (lost,) = await consume(engine, scope)
        began = time.monotonic()
        async with engine_on(pair.url_of(pair.standby)) as (other, _):
            assert await publish(other, scope, b"new-1", b"new-2") == [1, 2]
        await succeeds(engine.cells[0].check)
        assert time.monotonic() - began < size.pick(ci=30, full=10), "it serves within 10 s of the promotion"
        assert await ack(engine, scope, lost) != Answered(), "the message of the lost lease is another one now"
        (lease,) = await consume(engine, scope)
        assert values([lease]) == [(1, b"new-1"), (2, b"new-2")]
        assert await ack(engine, scope, lease) == Answered()
        assert (await engine.cells[0].durability()).timeline == 2


async def test_the_loss_is_counted_and_lost_positions_are_refused(pair: Pair) -> None:
    """The log has grown past the lost offsets when the servers look, and one of them started after the failover."""
    async with engine_on(pair.url) as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        await publish(engine, scope, b"m0")
        with pair.losing():
            lost = await publish(engine, scope, *[b"lost"] * 7)
        async with engine_on(pair.url_of(pair.standby)) as (other, _):
            for _ in range(5):
                await publish(other, scope, *[b"new"] * 7)
            await succeeds(engine.cells[0].check)
            await eventually_async(lambda: engine.losses.total)
            assert engine.losses.total == len(lost) == 7
            assert other.losses.total == 0
            topic = await engine.topics.describe(scope, "orders")
            asks = [(topic.topic.pid(partition), 1) for partition in range(2)]
            assert sum(end or 0 for end in await other.cells[0].timelines.ends_after(asks)) == 1
            assert await other.cells[0].timelines.ends_after([(pid, 2) for pid, _ in asks]) == [None, None]


async def test_S10_a_repeated_ack_is_only_confirmed_if_the_standby_has_it(pair: Pair) -> None:
    """The wait of the first ack was cancelled at one server, and the repeat goes to another process."""
    async with engine_on(pair.url) as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        await publish(engine, scope, b"m0")
        (lease,) = await consume(engine, scope)
        pair.catch_up()
        pair.standby.stop()
        admin = await asyncpg.connect(pair.url_of(pair.primary))
        await admin.execute("alter system set synchronous_standby_names = '*'")
        await admin.execute("select pg_reload_conf()")
        await commits_wait(pair, admin)
        # A URL of its own, so that it shares nothing with the first server.
        async with engine_on(pair.url_of(pair.primary)) as (other, _):
            acking = asyncio.create_task(ack(engine, scope, lease))
            await cancel_waits(admin)
            repeated = asyncio.create_task(ack(other, scope, lease))
            await asyncio.wait([repeated], timeout=1.0)
            assert not repeated.done(), "the standby does not have it"
            pair.standby.start()
            assert await asyncio.wait_for(repeated, 20) == Answered()
            pair.catch_up()
            await asyncio.wait_for(acking, 20)
        await admin.close()


async def test_a_server_never_returns_to_a_replaced_primary(pair: Pair) -> None:
    database = await Database.open(pair.url)
    try:
        assert database.timeline.number == 1
        pair.catch_up()
        pair.primary.pause()
        pair.standby.promote()
        await succeeds(database.check, within=20)
        assert database.timeline.number == 2
        pair.primary.resume()
        pair.standby.pause()
        with pytest.raises(Unavailable):
            async with asyncio.timeout(60):
                await database.check()
        pair.standby.resume()
        await succeeds(database.check, within=20)
        assert database.timeline.number == 2
    finally:
        pair.primary.resume()
        pair.standby.resume()
        await database.close()


async def test_stuck_calls_end_soon_after_the_promotion_although_the_primary_only_stopped(
    pair: Pair, size: Size
) -> None:
    async with engine_on(pair.url) as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        await publish(engine, scope, b"m0")
        pair.catch_up()
        pair.primary.pause()
        try:
            stuck = [asyncio.create_task(publish(engine, scope, b"stuck-%d" % number)) for number in range(20)]
            await asyncio.sleep(0.5)
            pair.standby.promote()
            began = time.monotonic()
            for each in stuck:
                with contextlib.suppress(LakelogError):
                    await each
            await succeeds(lambda: publish(engine, scope, b"after"))
            # A statement that nothing interrupts fails after 30 s.
            assert time.monotonic() - began < size.pick(ci=25, full=10)
        finally:
            pair.primary.resume()


async def test_an_attempt_that_began_before_the_promotion_finds_the_new_primary(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby has refused it, and the stopped primary never responds."""
    monkeypatch.setattr(connecting_module, "CONNECT_SECONDS", 120.0)
    database = await Database.open(pair.url)
    pair.catch_up()
    pair.primary.pause()
    try:
        connecting = asyncio.create_task(database.connect())
        await asyncio.sleep(0.7)
        assert not connecting.done()
        await asyncio.to_thread(pair.standby.promote)
        session = await asyncio.wait_for(connecting, 30)
        assert session.timeline == 2
        session.terminate()
    finally:
        pair.primary.resume()
        await database.close()


async def test_a_standby_is_refused_with_the_reason(pair: Pair) -> None:
    with pytest.raises(Unavailable, match="is a standby and read-only"):
        await Database.open(pair.url_of(pair.standby))


async def test_the_order_of_the_hosts_does_not_matter(pair: Pair) -> None:
    first, _, second = pair.url.partition(",")
    turned = f"postgresql://postgres@{second.partition('/')[0]},{first.rpartition('@')[2]}/{second.rpartition('/')[2]}"
    for url in (pair.url, turned, f"{pair.url}?target_session_attrs=read-write"):
        database = await Database.open(url)
        await database.check()
        await database.close()


async def test_a_connection_leaves_the_pool_when_its_node_becomes_read_only(pair: Pair) -> None:
    database = await Database.open(pair.url_of(pair.primary))
    try:
        pair.primary.execute("alter system set default_transaction_read_only = on")
        pair.primary.execute("select pg_reload_conf()")

        async def refused() -> bool:
            try:
                await database.check()
            except Unavailable:
                return True
            return False

        await eventually_async(refused)
        with psycopg_writable(pair.primary) as connection:
            connection.execute("alter system reset default_transaction_read_only")
        pair.primary.execute("select pg_reload_conf()")
        await succeeds(database.check, within=20)
    finally:
        await database.close()


async def test_a_cancelled_wait_for_the_standby_is_an_unknown_outcome(pair: Pair) -> None:
    """PostgreSQL reports success with a warning, and a failover would lose the message."""
    store = await open_store(pair.url_of(pair.primary))
    admin = await asyncpg.connect(pair.url_of(pair.primary))
    pair.standby.stop()
    pair.primary.execute("alter system set synchronous_standby_names = '*'")
    pair.primary.execute("select pg_reload_conf()")
    try:
        await commits_wait(pair, admin)
        assert (await store.durability()).synchronous_standby
        from tests.integration.test_postgres_faults import PID, append_of

        creating = asyncio.create_task(store.heads_create([PID], 1))
        await cancel_waits(admin)
        with pytest.raises(OutcomeUnknown, match="cancelled the wait for its synchronous standby"):
            await creating
        appending = asyncio.create_task(store.append([append_of()]))
        await cancel_waits(admin)
        with pytest.raises(Unavailable, match="waits for its synchronous standby"):
            await appending
        pair.standby.start()
        (done,) = await asyncio.wait_for(store.append([append_of()]), 20)
        assert done
    finally:
        await admin.close()
        await store.close()


async def test_S1_no_publish_whose_wait_was_cancelled_is_acknowledged(pair: Pair, size: Size) -> None:
    """The standby has none of them: whatever was acknowledged would be lost in the failover."""
    cancels = size.pick(ci=15, full=500)
    async with engine_on(pair.url) as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        acked = await publish(engine, scope, b"safe")
        pair.catch_up()
        pair.standby.stop()
        admin = await asyncpg.connect(pair.url_of(pair.primary))
        await admin.execute("alter system set synchronous_standby_names = '*'")
        await admin.execute("select pg_reload_conf()")
        await commits_wait(pair, admin)
        for number in range(cancels):
            publishing = asyncio.create_task(publish(engine, scope, b"doubtful-%d" % number))
            while not publishing.done():
                await admin.execute("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
                await asyncio.wait([publishing], timeout=0.01)
            with contextlib.suppress(OutcomeUnknown, Unavailable):
                acked += publishing.result()
        await admin.close()
        pair.primary.kill9()
        pair.standby.start()
        pair.standby.promote()
        await succeeds(engine.cells[0].check, within=20)
        described = await engine.topics.describe(scope, "orders")
        assert acked == [0]
        assert described.heads[0].next_offset == 1, "the others are lost, and no call reported success"


async def test_dead_peers_are_found_by_keepalive(pair: Pair) -> None:
    database = await Database.open(pair.url)
    session = await database.connect()
    try:
        connected = session._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 10
    finally:
        session.terminate()
        await database.close()


async def cancel_waits(admin: asyncpg.Connection) -> None:
    """Cancel the next statement that waits for the standby."""
    await eventually_async(
        lambda: admin.fetchval(
            "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' "
            "and pid <> pg_backend_pid() limit 1"
        ),
        within=30,
    )


@contextlib.contextmanager
def psycopg_writable(cluster: Cluster):  # type: ignore[no-untyped-def]
    import psycopg

    options = "-c default_transaction_read_only=off"
    with psycopg.connect(cluster.url(), autocommit=True, options=options) as connection:
        yield connection
