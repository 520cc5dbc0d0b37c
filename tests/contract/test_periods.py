"""Keys and producers over several days: a repeat is recognised in any period, and what has expired goes in again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lakelog.storage.store import RESERVATION_GRACE, Refused, Reservation, Verdict
from tests.contract.stores import Backing
from tests.contract.values import (
    append_one,
    appended,
    create_one,
    new_hash,
    new_incarnation,
    new_producer,
    numbered,
    refused,
    run,
    with_keys,
)

HOUR = 60 * 60
STEP = 3 * HOUR
"""Shorter than a period, so that periods hold several keys."""
STEPS = 24


async def test_a_key_is_a_duplicate_for_a_day_in_whatever_period_it_is(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid = await create_one(store)
        keys: list[bytes] = []
        offsets: list[int] = []
        for _ in range(STEPS):
            keys.append(new_hash())
            offsets.append((await appended(store, with_keys(pid, keys[-1]))).base)
            await pass_by(STEP)
            await store.trim({})
            answer = await refused(store, with_keys(pid, *keys[-7:]))
            assert {verdict.index: verdict.offset for verdict in answer.verdicts} == dict(enumerate(offsets[-7:]))
        for key in keys[:-8]:
            await appended(store, with_keys(pid, key))
        answer = await refused(store, with_keys(pid, *keys))
        assert len(answer.verdicts) == STEPS - 1, "the one that is exactly a day old has expired"


async def test_a_reservation_that_is_used_every_few_hours_holds_for_days(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        first = Reservation(incarnation=new_incarnation(), key_hash=new_hash(), body_hash=new_hash(), partition=3)
        for step in range(STEPS):
            assert await store.reserve([replace(first, partition=step)], durable=True) == [replace(first, partition=0)]
            await pass_by(STEP)
            await store.trim({})
        other = replace(first, body_hash=new_hash())
        await pass_by(24 * HOUR + RESERVATION_GRACE.total_seconds())
        assert await store.reserve([other], durable=True) == [other]


async def test_another_body_is_answered_with_the_reservation_of_an_older_period(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        incarnation = new_incarnation()
        old, new = (
            Reservation(incarnation=incarnation, key_hash=new_hash(), body_hash=new_hash(), partition=partition)
            for partition in range(2)
        )
        await store.reserve([old], durable=True)
        for _ in range(6):
            await pass_by(STEP)
            await store.trim({})
        asked = [replace(old, body_hash=new_hash(), partition=7), new]
        assert await store.reserve(asked, durable=True) == [old, new]


async def test_a_producer_continues_from_period_to_period(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid, producer, idle = await create_one(store), new_producer(), new_producer()
        await appended(store, numbered(pid, run(idle, 0)))
        offsets = []
        for sequence in range(STEPS):
            offsets.append((await appended(store, numbered(pid, run(producer, sequence)))).base)
            await pass_by(STEP)
            await store.trim({})
            for known in range(max(0, sequence - 4), sequence + 1):
                (verdict,) = (await refused(store, numbered(pid, run(producer, known)))).verdicts
                assert (verdict.verdict, verdict.offset) == (Verdict.DUPLICATE, offsets[known])
            (verdict,) = (await refused(store, numbered(pid, run(producer, sequence + 2)))).verdicts
            assert verdict.verdict is Verdict.GAP
        (verdict,) = (await refused(store, numbered(pid, run(idle, 1)))).verdicts
        assert verdict.verdict is Verdict.UNKNOWN_PRODUCER
        await appended(store, numbered(pid, run(idle, 0)))


async def test_a_key_of_a_topic_that_remembers_a_month_outlives_all_periods(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid, key, month = await create_one(store), new_hash(), timedelta(days=30)
        held = Reservation(incarnation=new_incarnation(), key_hash=key, body_hash=new_hash(), partition=2, memory=month)
        await store.reserve([held], durable=True)
        await appended(store, with_keys(pid, key, memory=month))
        for _ in range(29):
            await pass_by(24 * HOUR)
            await store.trim({})
        other = replace(held, body_hash=new_hash(), partition=4)
        assert await store.reserve([other], durable=True) == [held]
        assert isinstance(await append_one(store, with_keys(pid, key, memory=month)), Refused)
        await pass_by(24 * HOUR + RESERVATION_GRACE.total_seconds())
        await store.trim({})
        assert await store.reserve([other], durable=True) == [other]
        assert (await appended(store, with_keys(pid, key, memory=month))).base == 1


async def test_maintenance_after_days_without_servers_catches_up(backing: Backing) -> None:
    """The next passes forget what has expired, and keep what was written since."""
    async with backing.aging_store() as (store, pass_by):
        pid, old, new, producer = await create_one(store), new_hash(), new_hash(), new_producer()
        await appended(store, with_keys(pid, old))
        await appended(store, numbered(pid, run(producer, 0)))
        await pass_by(100 * HOUR)
        await appended(store, with_keys(pid, new))
        assert (await appended(store, with_keys(pid, old))).base == 3, "it counts no more, even before a trim"
        await store.trim({})
        await store.trim({})
        assert isinstance(await append_one(store, with_keys(pid, new)), Refused)
        assert isinstance(await append_one(store, with_keys(pid, old)), Refused)
        (verdict,) = (await refused(store, numbered(pid, run(producer, 1)))).verdicts
        assert verdict.verdict is Verdict.UNKNOWN_PRODUCER
