"""Members over a store in memory: joining, falling silent, leaving; several servers over one store; few writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from lakelog import failpoints
from lakelog.engine import changes as changes_module
from lakelog.engine.changes import Changes
from lakelog.engine.clock import Clock as CellClock
from lakelog.engine.groups import group_members as roster_module
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.members import Members
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.consuming import MembersInfo
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics
from lakelog.errors import (
    GroupKindDiffers,
    GroupNotFound,
    InvalidRequest,
    LakelogError,
    OutcomeUnknown,
    TopicNotFound,
    Unavailable,
    UnknownMember,
)
from lakelog.model.group import Group, GroupKind
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest
from lakelog.model.topic import Scope
from lakelog.storage.groups import MembersRead
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.memory.groups import MemoryGroups
from lakelog.storage.store import Append, PartitionStore
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import Clock, packed

CURSOR: dict[str, Any] = {"kind": GroupKind.CURSOR}
SESSION = 30_000


class WatchedGroups(MemoryGroups):
    """Counts calls, holds up writes, loses answers, and lets a test do something just before a write."""

    def __init__(self, store: MemoryStore, clock: Callable[[], object]) -> None:
        super().__init__(clock, store._is_deleted, store._append_one)  # type: ignore[arg-type]
        self.calls: Counter[str] = Counter()
        self.heartbeats: list[set[tuple[int, str]]] = []
        self.refused = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail_read: LakelogError | None = None
        self.fail_write: LakelogError | None = None
        self.lose_answer = False

    async def members_read(self, group_id: int) -> MembersRead:
        self.calls["read"] += 1
        if self.fail_read is not None:
            raise self.fail_read
        return await super().members_read(group_id)

    async def members_write(self, group_id: int, version: int, body: bytes) -> bool:
        self.calls["write"] += 1
        await self.gate.wait()
        if self.fail_write is not None:
            raise self.fail_write
        written = await super().members_write(group_id, version, body)
        self.refused += not written
        if self.lose_answer:
            self.lose_answer = False
            raise OutcomeUnknown()
        return written

    async def heartbeats_write(self, seen: Collection[tuple[int, str]]) -> int:
        if self.fail_read is not None:
            raise self.fail_read
        self.heartbeats.append(set(seen))
        return await super().heartbeats_write(seen)


class Store(MemoryStore):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock) if clock else super().__init__()
        self._groups = WatchedGroups(self, self._clock)

    @property
    def groups(self) -> WatchedGroups:
        assert isinstance(self._groups, WatchedGroups)
        return self._groups


class ToldChanges(Changes):
    """Notes the groups that this process changed. The directory keeps its cache: looking at a group awaits nothing."""

    def __init__(self, cells: dict[int, PartitionStore]) -> None:
        super().__init__(cells)
        self.told: list[int] = []

    def add_group_cache(self, invalidate: object) -> None:
        pass

    def group_changed(self, group_id: int) -> None:
        self.told.append(group_id)
        super().group_changed(group_id)


class Server:
    """The parts of an engine for members; two over one store are two servers."""

    def __init__(self, catalog: MemoryCatalog, store: Store, scope: Scope) -> None:
        self.scope = scope
        self.changes = ToldChanges({0: store})
        self.waiters, self.announcer = self.changes.waiters, self.changes.announcers[0]
        self.topics = Topics(catalog, {0: store})
        self.told = self.changes.told
        extents = Extents({0: store})
        journals = Journals({0: store}, BatchCache(extents), {0: CellClock()}, self.waiters)
        self.group_directory = GroupDirectory(catalog, extents, self.topics, journals, self.changes)
        self.members = Members(self.group_directory, self.topics, {0: store}, self.changes)
        self.catalog = catalog

    async def join(self, member: str | None, *topics: str, host: str = "", **fields: object) -> dict[str, list[int]]:
        ask = JoinRequest(group="billing", topics=topics or ("orders",), member_id=member, **fields)  # type: ignore[arg-type]
        return shown((await self.members.join(self.scope, ask, host)).assigned)

    async def leave(self, member: str) -> None:
        await self.members.leave(self.scope, LeaveRequest(group="billing", member_id=member))

    async def heartbeat(self, member: str, generation: int = 0) -> tuple[int, dict[str, list[int]]]:
        request = HeartbeatRequest(group="billing", member_id=member, generation=generation)
        answer = await self.members.heartbeat(self.scope, request)
        return answer.generation, shown(answer.assigned)

    async def group(self) -> Group:
        return await self.group_directory.resolve(self.scope, "billing", create=False)

    async def describe(self) -> MembersInfo:
        return await self.members.describe(await self.group())

    async def names(self) -> list[str]:
        return [member.member_id for member in (await self.describe()).members]

    async def knows(self, group: Group, member: str, generation: int) -> bool:
        return (await self.members.membership(group, member)).generation == generation

    async def hears(self) -> None:
        """Until another server's announcement is here."""
        group_members = self.members._by_group[(await self.group()).group_id]
        await eventually_async(lambda: group_members._news.is_set())

    async def flush(self) -> None:
        """Write the heartbeats that this server received."""
        await self.members._heartbeats[0].flush()


def shown(assigned: object) -> dict[str, list[int]]:
    assert isinstance(assigned, dict)
    return {topic: list(partitions) for topic, partitions in assigned.items()}


@asynccontextmanager
async def servers(count: int = 1, store: Store | None = None) -> AsyncIterator[tuple[Store, list[Server]]]:
    store = store or Store(Clock())
    catalog = MemoryCatalog()
    scope = await catalog.scope_create("shop", "test")
    made = [Server(catalog, store, scope) for _ in range(count)]
    await made[0].topics.create(scope, "orders", 6)
    for server in made:
        server.announcer.start()
    try:
        yield store, made
    finally:
        for server in made:
            await server.members.close()
            await server.announcer.stop()


def clock_of(store: Store) -> Clock:
    assert isinstance(store._clock, Clock)
    return store._clock


async def test_s17_who_replaces_has_all_at_once_also_on_another_server() -> None:
    async with servers(2) as (_, [one, other]):
        await one.join("A", **CURSOR)
        await one.join("B")
        assert await other.join("C", replaces=True) == {"orders": [0, 1, 2, 3, 4, 5]}
        assert await other.names() == ["C"]
        for member in ("A", "B"):
            with pytest.raises(UnknownMember):
                await one.heartbeat(member)
        generation, _ = await other.heartbeat("C")
        await other.join("C", replaces=True)
        assert await other.heartbeat("C") == (generation, {"orders": [0, 1, 2, 3, 4, 5]})


async def test_who_joins_first_gets_all_and_gives_half_to_the_second() -> None:
    async with servers() as (_, [server]):
        assert await server.join("A") == {"orders": [0, 1, 2, 3, 4, 5]}
        assert await server.join("B", host="host-7") == {"orders": [3, 4, 5]}
        assert await server.heartbeat("A") == (2, {"orders": [0, 1, 2]})
        described = await server.describe()
        assert (described.state, described.generation, described.rebalances) == ("stable", 2, 2)
        assert [(m.member_id, m.client_host, m.topics) for m in described.members] == [
            ("A", "", ("orders",)),
            ("B", "host-7", ("orders",)),
        ]
        assert described.idle == ()
        assert described.last_rebalance_at == clock_of(server_store(server)).now


def server_store(server: Server) -> Store:
    store = server.members._cells[0]
    assert isinstance(store, Store)
    return store


async def test_a_member_without_an_id_is_given_one() -> None:
    async with servers() as (_, [server]):
        first = await server.members.join(server.scope, JoinRequest(group="billing", topics=["orders"]))
        second = await server.members.join(
            server.scope, JoinRequest(group="billing", topics=["orders"], session_ms=3_000)
        )
        assert await server.names() == [first.member_id, second.member_id]
        assert (first.heartbeat_ms, second.heartbeat_ms) == (10_000, 1_000)


async def test_joining_makes_the_group_and_says_what_it_reads_from_then_on() -> None:
    async with servers() as (_, [server]):
        await server.join("A")
        [(topic, group_topic)] = await server.catalog.groups.group_topic_list(await server.group())
        assert (topic.name, len(group_topic.starts)) == ("orders", 6)


async def test_only_the_join_that_creates_a_position_counts_the_messages_it_skips() -> None:
    async with servers() as (store, [server]):
        topic = await server.topics.find(server.scope, "orders")
        for partition, values in {0: "abc", 5: "de"}.items():
            await store.append([Append(pid=topic.pid(partition), epoch=topic.epoch, payloads=[packed(*values)])])
        for group, start, skipped in (("all", "earliest", 0), ("new", None, 5)):
            ask = JoinRequest(group=group, topics=["orders"], start_from=start)
            assert (await server.members.join(server.scope, ask)).skipped_at_start == {"orders": skipped}
            assert (await server.members.join(server.scope, ask)).skipped_at_start == {}


async def test_an_unknown_topic_makes_no_group_and_another_kind_is_refused() -> None:
    async with servers() as (_, [server]):
        with pytest.raises(TopicNotFound):
            await server.join("A", "nothing")
        with pytest.raises(GroupNotFound):
            await server.group()
        await server.join("A")
        with pytest.raises(GroupKindDiffers):
            await server.join("B", **CURSOR)


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"member_id": "a\nb"},
        {"member_id": "x" * 201},
        {"member_id": "é" * 101},
        {"member_id": "\ud800"},
        {"host": "\x1b[31m"},
        {"host": "h" * 201},
        {"session_ms": 499},
        {"session_ms": 30 * 60 * 1000 + 1},
        {"topics": []},
        {"topics": ["orders"] * 101},
    ],
)
async def test_what_cannot_be_is_refused(fields: dict[str, object]) -> None:
    fields = dict(fields)
    async with servers() as (store, [server]):
        host = str(fields.pop("host", ""))
        ask = JoinRequest(**({"group": "billing", "topics": ["orders"]} | fields))  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            await server.members.join(server.scope, ask, host)
        assert not store.groups.calls


async def test_s18_joining_again_writes_nothing() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        told = list(server.told)
        assert await server.join("A") == {"orders": [0, 1, 2, 3, 4, 5]}
        assert (store.groups.calls["write"], server.told) == (1, told)


async def test_s18_many_who_come_and_go_at_once_share_writes() -> None:
    """64 members join in two rebalances at most, and leave in two."""
    async with servers() as (store, [server]):
        ids = [f"m{n:02}" for n in range(64)]
        await asyncio.gather(*(server.join(member) for member in ids))
        described = await server.describe()
        assert len(described.members) == 64
        assert len(described.idle) == 58
        assert described.rebalances <= 2
        await asyncio.gather(*(server.leave(member) for member in ids))
        assert (await server.describe()).state == "empty"
        assert store.groups.calls["write"] <= 5


async def test_a_caller_that_gave_up_before_the_write_does_not_join() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        store.groups.gate.clear()
        first = asyncio.create_task(server.join("B"))
        await eventually_async(lambda: store.groups.calls["write"] == 2)
        second = asyncio.create_task(server.join("C"))
        third = asyncio.create_task(server.join("D"))
        await eventually_async(lambda: len(next(iter(server.members._by_group.values()))._waiting) == 2)
        second.cancel()
        store.groups.gate.set()
        await asyncio.gather(first, third)
        assert await server.names() == ["A", "B", "D"]


async def test_leaving_twice_or_what_is_not_there_is_no_error() -> None:
    async with servers() as (_, [server]):
        await server.leave("A")
        await server.join("A")
        await server.leave("A")
        await server.leave("A")
        with pytest.raises(UnknownMember) as refused:
            await server.heartbeat("A")
        assert refused.value.subject == {"group": "billing", "member_id": "A"}


async def test_leaving_wakes_the_others_at_once_on_every_server() -> None:
    async with servers(2) as (_, [one, two]):
        await one.join("A")
        await two.join("B")
        assert (await one.heartbeat("A"))[1] == {"orders": [0, 1, 2]}
        group = await two.group()
        with two.waiters.waiting(-group.group_id) as far, one.waiters.waiting(-group.group_id) as near:
            await one.leave("A")
            assert near.is_set()
            async with asyncio.timeout(5):
                await far.wait()
        assert shown((await two.members.membership(group, "B")).assigned) == {"orders": [0, 1, 2, 3, 4, 5]}


async def test_a_change_elsewhere_is_seen_when_announced_and_costs_nothing_before() -> None:
    async with servers(2) as (store, [one, two]):
        await one.join("A")
        await two.join("B")
        await one.hears()
        group = await one.group()
        reads = store.groups.calls["read"]
        first = await one.members.membership(group, "A")
        assert shown(first.assigned) == {"orders": [0, 1, 2]}
        for _ in range(20):
            assert await one.members.membership(group, "A") == first
        assert store.groups.calls["read"] == reads + 1


async def test_a_lost_announcement_is_made_good_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "DOUBT_SECONDS", 0.05)
    async with servers(2) as (_, [one, two]):
        await one.join("A")
        await two.announcer.stop()
        await one.announcer.stop()
        await two.join("B")
        group = await one.group()

        knows: Callable[[], bool | Awaitable[bool]] = partial(one.knows, group, "A", 2)
        await eventually_async(knows)


async def test_s17_a_lost_race_is_decided_again() -> None:
    """Both read the same version; the one who writes second reads again, and takes nothing from the first."""
    async with servers(2) as (store, [one, two]):
        await one.join("A")
        store.groups.gate.clear()
        joins = asyncio.gather(one.join("B"), two.join("C"))
        await eventually_async(lambda: store.groups.calls["write"] == 3)
        store.groups.gate.set()
        await joins
        assert store.groups.refused == 1
        described = await two.describe()
        assert sorted(member.member_id for member in described.members) == ["A", "B", "C"]
        owned = [n for member in described.members for n in member.assigned["orders"]]
        assert sorted(owned) == [0, 1, 2, 3, 4, 5]
        assert described == await one.describe()


async def test_s17_many_servers_changing_one_group_lose_nobody() -> None:
    async with servers(4) as (_, all_servers):
        ids = [f"m{n:02}" for n in range(24)]
        await asyncio.gather(*(all_servers[n % 4].join(member) for n, member in enumerate(ids)))
        await asyncio.gather(*(all_servers[(n + 1) % 4].leave(member) for n, member in enumerate(ids[:20])))
        for server in all_servers:
            described = await server.describe()
            assert sorted(member.member_id for member in described.members) == ids[20:]
            owned = [n for member in described.members for n in member.assigned["orders"]]
            assert sorted(owned) == [0, 1, 2, 3, 4, 5]


async def test_an_answer_that_was_lost_is_looked_up() -> None:
    async with servers() as (store, [server]):
        store.groups.lose_answer = True
        assert await server.join("A") == {"orders": [0, 1, 2, 3, 4, 5]}
        assert store.groups.calls["write"] == 1
        assert server.told, "other servers are notified of the late write"


async def test_a_store_out_of_reach_is_an_error_and_not_a_loop() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        store.groups.fail_write = Unavailable()
        with pytest.raises(Unavailable):
            await server.join("B")
        store.groups.fail_write, store.groups.fail_read = None, Unavailable()
        with pytest.raises(Unavailable):
            await server.join("B")
        store.groups.fail_read = None
        assert await server.join("B") == {"orders": [3, 4, 5]}


async def test_an_error_behind_the_write_does_not_say_that_nothing_was_written() -> None:
    async with servers() as (store, [server]):
        failpoints.arm("members.after_write=error@1")
        try:
            assert await server.join("A") == {"orders": [0, 1, 2, 3, 4, 5]}
        finally:
            failpoints.arm("")
        assert store.groups.calls["write"] == 1


async def test_who_falls_silent_is_evicted_and_may_come_back() -> None:
    async with servers(2) as (store, [one, two]):
        await one.join("A")
        await two.join("B")
        await one.flush()
        await two.flush()
        clock_of(store).pass_by(seconds=20)
        assert (await two.heartbeat("B"))[0] == 2
        await two.flush()
        clock_of(store).pass_by(seconds=10)
        assert await one.names() == ["A", "B"], "the session expired, but a heartbeat of A may still arrive"
        clock_of(store).pass_by(seconds=2)
        assert await two.names() == ["B"]
        assert (await two.heartbeat("B"))[1] == {"orders": [0, 1, 2, 3, 4, 5]}
        await one.hears()
        with pytest.raises(UnknownMember):
            await one.heartbeat("A")
        assert await one.join("A") == {"orders": [3, 4, 5]}
        assert (await two.describe()).generation == 4


async def test_heartbeats_keep_a_member() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        for _ in range(6):
            await server.flush()
            clock_of(store).pass_by(seconds=20)
            assert (await server.heartbeat("A", 1))[0] == 1
        assert await server.names() == ["A"]


async def test_asking_for_messages_counts_as_a_heartbeat() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        group = await server.group()
        for _ in range(6):
            await server.flush()
            clock_of(store).pass_by(seconds=20)
            server.members.seen(group, "A")
        assert await server.names() == ["A"]
        server.members.seen(group, "stranger")
        await server.flush()
        assert all(member == "A" for seen in store.groups.heartbeats for _, member in seen)


async def test_a_late_heartbeat_that_nobody_noticed_the_lack_of_is_in_time() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        await server.flush()
        clock_of(store).pass_by(seconds=60)
        server.members._by_group[(await server.group()).group_id]._news.set()
        assert (await server.heartbeat("A"))[0] == 1


async def test_s18_another_server_sees_heartbeats_of_this_one_and_evicts_nobody() -> None:
    """The members' server is gone; the one that takes over knows only the table."""
    async with servers(2) as (store, [one, two]):
        await one.join("A")
        await one.flush()
        clock_of(store).pass_by(seconds=29)
        await one.heartbeat("A")
        await one.flush()
        clock_of(store).pass_by(seconds=29)
        assert await two.names() == ["A"]


async def test_s18_heartbeats_lost_in_a_crash_evict_nobody_at_once() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        await server.join("B")
        await server.flush()
        group = await server.group()
        await store.groups.heartbeats_drop(group.group_id, ["A", "B"])
        clock_of(store).pass_by(seconds=100)
        assert await server.names() == ["A", "B"]
        await server.flush()
        clock_of(store).pass_by(seconds=32)
        await server.heartbeat("B")
        assert await server.names() == ["B"], "their sessions started again"


async def test_s18_nobody_is_evicted_just_after_the_store_was_out_of_reach() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        await server.flush()
        store.groups.fail_read = Unavailable()
        clock_of(store).pass_by(seconds=100)
        with pytest.raises(Unavailable):
            await server.describe()
        store.groups.fail_read = None
        await server.join("B")
        assert await server.names() == ["A", "B"]
        server.members._heartbeats[0]._trusted_from = 0
        await server.join("C")
        assert await server.names() == ["B", "C"]


async def test_heartbeats_that_could_not_be_written_are_kept() -> None:
    async with servers() as (store, [server]):
        await server.join("A")
        await server.flush()
        before = len(store.groups.heartbeats)
        store.groups.fail_read = Unavailable()
        server.members.seen(await server.group(), "A")
        await server.flush()
        store.groups.fail_read = None
        await server.flush()
        assert store.groups.heartbeats[before:] == [{((await server.group()).group_id, "A")}]


async def test_heartbeats_of_many_members_share_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "HEARTBEAT_WITHIN_SECONDS", 1.0)
    async with servers(store=Store()) as (store, [server]):
        ids = [f"m{n:02}" for n in range(64)]
        await asyncio.gather(*(server.join(member) for member in ids))
        await server.flush()
        before = len(store.groups.heartbeats)
        for _ in range(5):
            await asyncio.gather(*(server.heartbeat(member, 1) for member in ids))
        await eventually_async(lambda: len(store.groups.heartbeats) > before)
        assert len(store.groups.heartbeats) <= before + 2
        assert len(store.groups.heartbeats[before]) == 64


@pytest.mark.parametrize("looks", [True, False])
async def test_a_dead_member_is_evicted_without_any_call_while_somebody_waits(looks: bool) -> None:
    """On the database's clock, which here is the machine's: half a second and the slack."""
    async with servers(2, Store()) as (_, [one, two]):
        await one.join("A", session_ms=500)
        # It reads that A joined before it is written that A was seen.
        await two.join("B")
        await one.members.close()
        group = await two.group()
        with two.waiters.waiting(-group.group_id) as changed:
            await two.hears()
            if looks:
                await two.members.membership(group, "B")
            changed.clear()
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with asyncio.timeout(20):
                await changed.wait()
            assert loop.time() - began < 5
        assert shown((await two.members.membership(group, "B")).assigned) == {"orders": [0, 1, 2, 3, 4, 5]}


async def test_a_group_that_nobody_asks_about_is_watched_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "CARE_SECONDS", 0.05)
    async with servers() as (_, [server]):
        await server.join("A")
        await eventually_async(lambda: not server.members._by_group)
        assert not server.waiters._waiting
        assert (await server.heartbeat("A"))[0] == 1


async def test_a_cursor_group_waits_for_the_heartbeat_with_the_new_generation() -> None:
    async with servers(2) as (store, [one, two]):
        await one.join("A", **CURSOR)
        assert await two.join("B", **CURSOR) == {}
        assert (await two.describe()).state == "rebalancing"
        clock_of(store).pass_by(milliseconds=250)
        await one.hears()
        told = await one.members.heartbeat(one.scope, HeartbeatRequest(group="billing", member_id="A", generation=1))
        assert (told.generation, shown(told.assigned)) == (2, {"orders": [0, 1, 2]})
        assert shown(told.revoked) == {"orders": [3, 4, 5]}
        assert (await two.heartbeat("B", 2))[1] == {}, "A has not yet said that it has heard"
        after = await one.members.heartbeat(one.scope, HeartbeatRequest(group="billing", member_id="A", generation=2))
        assert (after.generation, shown(after.revoked)) == (3, {})
        described = await two.describe()
        assert (described.state, described.rebalancing_ms) == ("stable", 250)
        assert await two.heartbeat("B", 2) == (3, {"orders": [3, 4, 5]})


async def test_a_heartbeat_says_what_a_member_runs_without_a_rebalance_and_revives_nobody() -> None:
    async with servers(2) as (_, [one, two]):
        await one.join("A", host="10.0.0.7", client="spark")
        beat = HeartbeatRequest(group="billing", member_id="A", generation=1, client="spark: totals, id 5a7c")
        told = await two.members.heartbeat(two.scope, beat)
        assert (told.generation, shown(told.assigned)) == (1, {"orders": [0, 1, 2, 3, 4, 5]})
        [member] = (await one.describe()).members
        assert member.client_host == "10.0.0.7 (spark: totals, id 5a7c)"
        writes = server_store(one).groups.calls["write"]
        await two.members.heartbeat(two.scope, beat)
        await one.heartbeat("A", 1)
        assert server_store(one).groups.calls["write"] == writes
        assert [each.client_host for each in (await one.describe()).members] == [member.client_host]
        with pytest.raises(InvalidRequest):
            await one.members.heartbeat(one.scope, replace(beat, client="x" * 200))
        await one.leave("A")
        with pytest.raises(UnknownMember):
            await two.members.heartbeat(two.scope, beat)
        assert await one.names() == []


async def test_added_partitions_are_shared_out_at_the_next_heartbeat() -> None:
    async with servers(2) as (_, [one, two]):
        await one.join("A")
        await two.join("B")
        await two.topics.alter(two.scope, "orders", partitions=8)
        _, share = await two.heartbeat("B", 2)
        assert len(share["orders"]) == 4
        # The first one's cache still says 6: that must not take the new ones back.
        assert one.topics.cached(one.scope, "orders") is not None
        one.members._by_group[(await one.group()).group_id]._news.set()
        _, share = await one.heartbeat("A", 2)
        assert len(share["orders"]) == 4
        assert (await one.describe()).rebalances == 3


async def test_a_deleted_topic_leaves_its_members_idle() -> None:
    async with servers() as (_, [server]):
        await server.join("A")
        await server.topics.delete(server.scope, "orders")
        assert await server.heartbeat("A", 1) == (2, {})
        assert (await server.describe()).idle == ("A",)


async def test_a_group_that_is_full_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.engine.groups.members.MAX_MEMBERS", 2)
    async with servers() as (_, [server]):
        await server.join("A")
        await server.join("B")
        with pytest.raises(LakelogError, match="cannot have more"):
            await server.join("C")
        assert await server.join("B") == {"orders": [3, 4, 5]}
