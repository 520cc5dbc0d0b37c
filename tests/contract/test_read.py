"""Reading: by offset, by time, by bytes from the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakelog.errors import OffsetOutOfRange
from lakelog.storage.store import Append, PartitionStore
from tests.contract.stores import Backing
from tests.contract.values import (
    EVERYTHING,
    appended,
    batch,
    create_one,
    head_of,
    new_pids,
    plain,
    read_batches,
)


async def bases(store: PartitionStore, pid: int, offset: int, **limits: int) -> list[int]:
    return [each.base for each in await read_batches(store, pid, offset, **limits)]


async def tens(store: PartitionStore, batches: int = 4) -> int:
    """Create a partition of batches with ten messages and 100 bytes each, one commit each."""
    pid = await create_one(store)
    for _ in range(batches):
        await appended(store, Append(pid=pid, epoch=0, payloads=[batch(10, size=100)]))
    return pid


async def test_a_read_without_a_head_is_none(backing: Backing) -> None:
    async with backing.store() as store:
        (pid,) = new_pids(1)
        assert await store.read(pid, 0, max_messages=1, max_bytes=1) is None


async def test_a_read_carries_the_head(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await tens(store)
        read = await store.read(pid, 0, max_messages=1, max_bytes=1)
        assert read is not None
        assert read.head == await head_of(store, pid)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, [0, 10, 20, 30]), (9, [0, 10, 20, 30]), (10, [10, 20, 30]), (15, [10, 20, 30]), (39, [30]), (40, [])],
)
async def test_a_read_begins_with_the_batch_that_holds_the_offset(
    backing: Backing, offset: int, expected: list[int]
) -> None:
    async with backing.store() as store:
        assert await bases(store, await tens(store), offset) == expected


@pytest.mark.parametrize(
    ("offset", "max_messages", "expected"),
    [(0, 0, [0]), (0, 10, [0]), (0, 11, [0, 10]), (0, 20, [0, 10]), (15, 10, [10]), (15, 11, [10, 20]), (35, 99, [30])],
)
async def test_a_read_stops_after_the_batch_that_reaches_the_messages(
    backing: Backing, offset: int, max_messages: int, expected: list[int]
) -> None:
    """Whole batches are counted, including the part of the first batch before the offset."""
    async with backing.store() as store:
        assert await bases(store, await tens(store), offset, max_messages=max_messages) == expected


@pytest.mark.parametrize(
    ("max_bytes", "expected"), [(0, [0]), (100, [0]), (101, [0, 10]), (200, [0, 10]), (201, [0, 10, 20])]
)
async def test_a_read_stops_after_the_batch_that_reaches_the_bytes(
    backing: Backing, max_bytes: int, expected: list[int]
) -> None:
    async with backing.store() as store:
        assert await bases(store, await tens(store), 5, max_bytes=max_bytes) == expected


async def test_an_empty_partition_is_read_at_its_next_offset(backing: Backing) -> None:
    async with backing.store() as store:
        assert await bases(store, await create_one(store), 0) == []


@pytest.mark.parametrize("offset", [-1, 0, 14, 41, 1 << 40])
async def test_an_offset_out_of_range_says_the_range(backing: Backing, offset: int) -> None:
    async with backing.store() as store:
        pid = await tens(store)
        await store.log_start_raise([(pid, 15)])
        with pytest.raises(OffsetOutOfRange) as caught:
            await store.read(pid, offset, max_messages=EVERYTHING, max_bytes=EVERYTHING)
        assert (caught.value.subject["log_start"], caught.value.subject["high_watermark"]) == (15, 40)


async def test_a_batch_that_the_log_start_cuts_is_returned_whole(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await tens(store)
        await store.log_start_raise([(pid, 15)])
        found = await read_batches(store, pid, 15)
        assert [(each.base, each.count) for each in found] == [(10, 10), (20, 10), (30, 10)]


async def test_the_other_server_reads_what_was_appended_at_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        for n in range(5):
            append = plain(pid, 1)
            await appended(one, append)
            (found,) = await read_batches(other, pid, n)
            assert found.payload == append.payloads[0].data


async def test_offset_at_time(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await tens(store, 3)
        first, second, third = [each.appended_at for each in await read_batches(store, pid, 0)]
        instant = timedelta(microseconds=1)
        assert await store.offset_at_time(pid, first - timedelta(days=1)) == 0
        assert await store.offset_at_time(pid, first) == 0
        assert await store.offset_at_time(pid, third + instant) == 30
        assert await store.offset_at_time(pid, third + timedelta(days=1)) == 30
        # Two appends may have the same time; then the result is the first of them.
        assert await store.offset_at_time(pid, second) == (10 if second > first else 0)
        assert await store.offset_at_time(pid, first + instant) == (
            10 if second > first else 20 if third > first else 30
        )


async def test_offset_at_time_is_never_below_the_log_start(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await tens(store)
        past = (await head_of(store, pid)).appended_at - timedelta(days=1)
        for log_start in (15, 20, 40):
            await store.log_start_raise([(pid, log_start)])
            assert await store.offset_at_time(pid, past) == log_start


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [(0, 40), (99, 40), (100, 30), (199, 30), (200, 20), (399, 10), (400, 0), (1 << 40, 0)],
)
async def test_offset_at_bytes(backing: Backing, max_bytes: int, expected: int) -> None:
    async with backing.store() as store:
        assert await store.offset_at_bytes(await tens(store), max_bytes) == expected


async def test_offset_at_bytes_is_never_below_the_log_start(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await tens(store)
        await store.log_start_raise([(pid, 20)])
        assert [await store.offset_at_bytes(pid, size) for size in (1000, 200, 100)] == [20, 20, 30]
        await store.log_start_raise([(pid, 25)])
        assert await store.offset_at_bytes(pid, 1000) == 25


async def test_offsets_of_an_empty_partition(backing: Backing) -> None:
    async with backing.store() as store:
        (missing,) = new_pids(1)
        for pid in (await create_one(store), missing):
            assert await store.offset_at_time(pid, await store.clock()) == 0
            assert await store.offset_at_bytes(pid, 0) == 0


async def test_many_reads_at_once_answer_what_each_would(backing: Backing) -> None:
    """Results are in the requested order, also for empty partitions, other rolls and offsets out of range."""
    async with backing.store() as store:
        old = await tens(store)
        await store.roll()
        new, empty = await tens(store, 2), await create_one(store)
        (missing,) = new_pids(1)
        asks = [(new, 5), (missing, 0), (old, 12), (empty, 0), (await tens(store, 1), 11)]
        limits = {"max_messages": 15, "max_bytes": EVERYTHING}
        *found, refusal = await store.read_many(asks, **limits)
        assert found == [await store.read(pid, offset, **limits) for pid, offset in asks[:-1]]
        assert isinstance(refusal, OffsetOutOfRange) and refusal.subject["high_watermark"] == 10
        assert await store.read_many([], **limits) == []


async def test_the_times_of_many_messages_are_read_in_one_call(backing: Backing) -> None:
    """Results are in the requested order, also several for one partition; unknown if there is no message, or if
    retention removed it.
    """
    async with backing.store() as store:
        old = await tens(store)
        await store.roll()
        await appended(store, plain(old, 5))
        new, (missing,) = await tens(store, 2), new_pids(1)
        batches = [*await read_batches(store, old, 0), *await read_batches(store, old, 40)]
        asks = [(old, 41), (old, 0), (missing, 0), (old, 39), (new, 20), (new, 3), (old, 9), (old, 45)]
        first = (await read_batches(store, new, 0))[0].appended_at
        times = {each.base: each.appended_at for each in batches}
        found = await store.append_times(asks)
        assert found == [times[40], times[0], None, times[30], None, first, times[0], None]
        await store.log_start_raise([(old, 15)])
        assert await store.append_times([(old, 14), (old, 15)]) == [None, times[10]]
        assert await store.append_times([]) == []
