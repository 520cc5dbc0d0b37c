"""Behaviour that only the stores in memory can show, with a clock that the test controls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lakelog.model.group import GroupKind, GroupSettings
from lakelog.model.topic import TopicSettings
from lakelog.storage.groups import GROUP_MEMORY
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import PRODUCER_MEMORY, RESERVATION_GRACE, Reservation, Trimmed, Verdict
from tests.contract.group_values import entry
from tests.contract.values import (
    appended,
    create_one,
    head_of,
    new_hash,
    new_incarnation,
    new_producer,
    numbered,
    plain,
    read_all,
    refused,
    run,
    with_keys,
)

HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_memory_time_never_falls_within_a_partition() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    pid = await create_one(store)
    start = clock.now
    for hours in (2, -5, 1, 3):
        clock.now = start + hours * HOUR
        await appended(store, plain(pid, 1))
    times = [each.appended_at for each in await read_all(store, pid)]
    assert times == [start + 2 * HOUR] * 3 + [start + 3 * HOUR]
    assert (await head_of(store, pid)).appended_at == times[-1]


async def test_memory_offset_at_time_between_appends() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    pid = await create_one(store)
    start = clock.now
    for _ in range(3):
        clock.now += HOUR
        await appended(store, plain(pid, 4, 6))
        await store.roll()
    moments = (HOUR, HOUR + INSTANT, 2 * HOUR - INSTANT, 2 * HOUR, 3 * HOUR, 3 * HOUR + INSTANT)
    assert [await store.offset_at_time(pid, start + moment) for moment in moments] == [0, 10, 10, 10, 20, 30]


async def test_memory_trim_forgets_what_is_old_enough() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    pid, old, used, key = await create_one(store), new_producer(), new_producer(), new_hash()
    await appended(store, numbered(pid, run(old, 0)))
    await appended(store, numbered(pid, run(used, 0)))
    await appended(store, with_keys(pid, key))
    reservation = Reservation(incarnation=new_incarnation(), key_hash=key, body_hash=new_hash(), partition=0)
    await store.reserve([reservation], durable=True)
    clock.now += PRODUCER_MEMORY - INSTANT
    await appended(store, numbered(pid, run(used, 1)))
    assert await store.trim({}) == Trimmed(heads=4)
    clock.now += INSTANT
    assert await store.trim({}) == Trimmed(producers=1, keys=1)
    clock.now += RESERVATION_GRACE - INSTANT
    assert await store.trim({}) == Trimmed()
    clock.now += INSTANT
    assert await store.trim({}) == Trimmed(keys=1)
    answer = await refused(store, numbered(pid, run(old, 1)))
    assert answer.verdicts[0].verdict is Verdict.UNKNOWN_PRODUCER
    assert (await refused(store, numbered(pid, run(used, 1)))).verdicts[0].offset == 3
    assert (await appended(store, with_keys(pid, key))).base == 4


async def test_memory_listeners_that_are_gone_are_forgotten() -> None:
    store = MemoryStore()
    kept = store.announcements()
    store.announcements()
    assert len(store._listeners) == 1
    await store.announce([1])
    await store.announce([2, 3])
    assert await anext(kept) == {1, 2, 3}


async def test_memory_catalog_uses_the_clock_given() -> None:
    clock = Clock()
    catalog = MemoryCatalog(clock)
    scope = await catalog.scope_create("project", "dev")
    assert (await catalog.topic_create(scope, "orders", TopicSettings(), [0])).created_at == clock.now


async def test_memory_groups_use_the_clock_given() -> None:
    clock = Clock()
    store, catalog = MemoryStore(clock), MemoryCatalog(clock)
    now = int(clock.now.timestamp() * 1000)
    for bounds, status in (((now + 1, now + 9), 2), ((now - 9, now - 1), 2), ((now, now), 0)):
        (answer,) = await store.groups.journals_commit([entry(1, 1, 1, bounds=bounds)])
        assert (answer.status, answer.clock_ms) == (status, now)
    assert await store.groups.heartbeats_write([(1, "m")]) == now
    clock.now -= HOUR
    await store.groups.heartbeats_write([(1, "m")])
    members = await store.groups.members_read(1)
    assert (members.seen_ms, members.clock_ms) == ({"m": now}, now - 3_600_000)
    scope = await catalog.scope_create("project", "dev")
    group = await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
    assert group.created_at == clock.now


async def test_memory_forgets_deleted_groups_after_an_hour() -> None:
    clock = Clock()
    catalog = MemoryCatalog(clock)
    scope = await catalog.scope_create("project", "dev")
    group = await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
    await catalog.groups.group_delete(group)
    for passed, left in ((GROUP_MEMORY, [group.group_id]), (INSTANT, [])):
        clock.now += passed
        await catalog.groups.group_forget([group.group_id])
        assert await catalog.groups.group_deleted() == left
