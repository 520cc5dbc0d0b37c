"""Samples of groups: written once a minute, kept in three resolutions, and dropped in whole tables."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from lakelog.storage.history import Resolution, Sample, StoredSample
from lakelog.storage.store import Catalog
from tests.contract.stores import Backing

_IDS = count(70_000)
HOUR = 60
START = 29_000_040
"""A minute at which an hour begins."""


def sample(group_id: int, body: bytes = b"x", incarnation: int = 1) -> Sample:
    return Sample(group_id=group_id, incarnation=incarnation, body=body)


async def read(
    catalog: Catalog, group_id: int, resolution: Resolution = Resolution.MINUTE, every: int = 1
) -> list[tuple[int, int, bytes]]:
    found: list[StoredSample] = await catalog.samples.samples_read(
        [group_id], [1, 2], resolution, START, START + 2 * HOUR, every
    )
    return [(each.incarnation, each.minute - START, each.body) for each in found]


async def test_a_minute_has_one_sample_of_each_group_in_each_topic(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        group, another = next(_IDS), next(_IDS)
        assert await one.samples.samples_write(START, [sample(group, b"a"), sample(group, b"b", 2)]) == 2
        assert await other.samples.samples_write(START, [sample(group, b"late"), sample(another)]) == 1
        assert await one.samples.samples_write(START + 3, [sample(group, b"c")]) == 1
        assert await other.samples.samples_write(START + 4, []) == 0
        assert await read(other, group) == [(1, 0, b"a"), (1, 3, b"c"), (2, 0, b"b")]
        assert await read(other, next(_IDS)) == []


async def test_samples_of_several_groups(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        group, another = next(_IDS), next(_IDS)
        await one.samples.samples_write(START, [sample(another, b"b"), sample(group, b"a"), sample(next(_IDS))])
        found = await other.samples.samples_read([another, group], [1], Resolution.MINUTE, START, START)
        assert [(each.group_id, each.body) for each in found] == [(group, b"a"), (another, b"b")]


async def test_the_first_sample_of_a_period_is_kept_in_the_coarse_resolutions(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        group = next(_IDS)
        for minute in (1, 9, 10, 11, 61):
            await one.samples.samples_write(START + minute, [sample(group, b"%d" % minute)])
        assert [each[1] for each in await read(other, group)] == [1, 9, 10, 11, 61]
        assert await read(other, group, Resolution.TEN_MINUTES) == [(1, 0, b"1"), (1, 10, b"10"), (1, 60, b"61")]
        assert await read(other, group, Resolution.HOUR) == [(1, 0, b"1"), (1, 60, b"61")]
        assert [each[1] for each in await read(other, group, Resolution.TEN_MINUTES, every=60)] == [0, 60]


async def test_old_samples_are_dropped_and_the_others_stay(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        group = next(_IDS)
        await one.samples.samples_write(START, [sample(group)])
        await one.samples.samples_trim(START + timedelta(days=1) // timedelta(minutes=1))
        assert len(await read(one, group)) == 1
        later = START + timedelta(days=4) // timedelta(minutes=1)
        assert await one.samples.samples_trim(later) >= 1
        assert await read(one, group) == []
        assert len(await read(one, group, Resolution.TEN_MINUTES)) == 1
        assert await one.samples.samples_trim(START + timedelta(days=35) // timedelta(minutes=1)) >= 1
        assert await read(one, group, Resolution.TEN_MINUTES) == []
        assert len(await read(one, group, Resolution.HOUR)) == 1
        assert await one.samples.samples_trim(START + timedelta(days=440) // timedelta(minutes=1)) >= 1
        assert await read(one, group, Resolution.HOUR) == []
