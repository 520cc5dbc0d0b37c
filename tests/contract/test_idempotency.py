"""Idempotency keys: the first reservation wins, and a key is appended to its partition once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from lakelog.model.message import PARTITION_BITS
from lakelog.storage.store import (
    RESERVATION_GRACE,
    Appended,
    PartVerdict,
    Refusal,
    Refused,
    Reservation,
    Verdict,
)
from tests.contract.stores import Backing
from tests.contract.values import (
    append_one,
    appended,
    create,
    create_one,
    head_of,
    new_hash,
    new_incarnation,
    new_producer,
    numbered,
    plain,
    refused,
    run,
    with_keys,
)

DAY = 24 * 60 * 60


def reservation(incarnation: int, partition: int = 0, key_hash: bytes = b"") -> Reservation:
    return Reservation(
        incarnation=incarnation, key_hash=key_hash or new_hash(), body_hash=new_hash(), partition=partition
    )


def duplicate(index: int, offset: int | None = None) -> PartVerdict:
    return PartVerdict(keyed=True, index=index, verdict=Verdict.DUPLICATE, offset=offset)


@pytest.mark.parametrize("durable", [True, False])
async def test_the_first_reservation_of_a_key_holds(backing: Backing, durable: bool) -> None:
    async with backing.store_pair() as (one, other):
        first = reservation(new_incarnation(), partition=3)
        assert await one.reserve([first], durable=durable) == [first]
        assert await one.reserve([first], durable=durable) == [first]
        later = replace(first, body_hash=new_hash(), partition=1)
        assert await other.reserve([later], durable=durable) == [first]


async def test_reservations_are_returned_in_the_given_order(backing: Backing) -> None:
    async with backing.store() as store:
        incarnation = new_incarnation()
        old = [reservation(incarnation, partition) for partition in range(3)]
        await store.reserve(old, durable=True)
        new = [reservation(incarnation, partition) for partition in range(3)]
        asked = [new[0], replace(old[2], partition=9), new[1], replace(old[0], body_hash=new_hash()), new[2]]
        assert await store.reserve(asked, durable=True) == [new[0], old[2], new[1], old[0], new[2]]
        assert await store.reserve([], durable=True) == []


async def test_a_key_belongs_to_one_incarnation(backing: Backing) -> None:
    async with backing.store() as store:
        first = reservation(new_incarnation())
        other = replace(first, incarnation=new_incarnation(), partition=5)
        assert await store.reserve([first, other], durable=True) == [first, other]


async def test_one_reservation_wins_under_concurrency(backing: Backing) -> None:
    async with backing.store_pair() as handles:
        incarnation = new_incarnation()
        keys = [new_hash() for _ in range(5)]

        async def attempt(n: int) -> list[Reservation]:
            mine = [reservation(incarnation, n, key) for key in (keys if n % 3 else reversed(keys))]
            held = await handles[n % 2].reserve(mine, durable=n % 4 < 2)
            return sorted(held, key=lambda each: each.key_hash)

        answers = await asyncio.gather(*(attempt(n) for n in range(16)))
        assert all(answer == answers[0] for answer in answers)
        assert [each.key_hash for each in answers[0]] == sorted(keys)


async def test_a_key_that_is_in_the_log_is_a_duplicate_with_its_offset(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, first, second = await create_one(one), new_hash(), new_hash()
        await appended(one, plain(pid, 10))
        assert (await appended(one, with_keys(pid, first, second))).base == 10
        answer = await refused(other, with_keys(pid, second))
        assert answer.refusal is Refusal.PARTS
        assert list(answer.verdicts) == [duplicate(0, 11)]


async def test_duplicate_keys_beside_new_ones_write_nothing_and_the_rest_goes_in_again(backing: Backing) -> None:
    async with backing.store() as store:
        pid, old, new, newer = await create_one(store), new_hash(), new_hash(), new_hash()
        await appended(store, with_keys(pid, old))
        before = await head_of(store, pid)
        answer = await refused(store, with_keys(pid, new, old, newer))
        assert list(answer.verdicts) == [duplicate(1, 0)]
        assert await head_of(store, pid) == before
        assert (await appended(store, with_keys(pid, new, newer))).base == 1
        answer = await refused(store, with_keys(pid, newer, new))
        assert set(answer.verdicts) == {duplicate(0, 2), duplicate(1, 1)}


async def test_a_key_that_occurs_twice_in_one_append_is_stored_once(backing: Backing) -> None:
    """Two calls with one key may be in one commit; the second has no offset before the first is written."""
    async with backing.store() as store:
        pid, key = await create_one(store), new_hash()
        answer = await refused(store, with_keys(pid, key, key))
        assert list(answer.verdicts) == [duplicate(1)]
        assert (await head_of(store, pid)).next_offset == 0


async def test_runs_and_keys_are_judged_together(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer, key = await create_one(store), new_producer(), new_hash()
        await appended(store, with_keys(pid, key))
        numbers = numbered(pid, run(producer, 4, 1))
        append = replace(with_keys(pid, key), payloads=numbers.payloads, sequenced=numbers.sequenced)
        answer = await refused(store, append)
        unknown = PartVerdict(keyed=False, index=0, verdict=Verdict.UNKNOWN_PRODUCER)
        assert set(answer.verdicts) == {unknown, duplicate(0, 0)}


async def test_one_key_from_both_servers_at_once_goes_in_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, key = await create_one(one), new_hash()
        answers = await asyncio.gather(*(append_one(store, with_keys(pid, key)) for store in (one, other) * 4))
        (won,) = [answer for answer in answers if isinstance(answer, Appended)]
        lost = [answer for answer in answers if isinstance(answer, Refused)]
        assert [list(answer.verdicts) for answer in lost] == [[duplicate(0, won.base)]] * 7
        assert (await head_of(one, pid)).next_offset == 1


async def test_a_trim_keeps_the_keys_of_topics_that_remember_longer(backing: Backing) -> None:
    """Also keys whose reservations are in another cell, so that this store has none of them."""
    async with backing.store() as store:
        (short,), (long,), (usual,) = await create(store), await create(store), await create(store)
        key, hour = new_hash(), timedelta(hours=1)
        appends = [
            with_keys(short, key, memory=timedelta(0)),
            with_keys(long, key, memory=hour),
            with_keys(usual, key),
        ]
        await store.append(appends)
        await store.trim({short >> PARTITION_BITS: timedelta(0), long >> PARTITION_BITS: hour})
        answers = await store.append(appends)
        kinds = [answer.refusal if isinstance(answer, Refused) else answer.base for answer in answers]
        assert kinds == [1, Refusal.PARTS, Refusal.PARTS]


@pytest.mark.parametrize("trims", [True, False])
async def test_keys_are_forgotten_as_the_topic_says(backing: Backing, trims: bool) -> None:
    async with backing.aging_store() as (store, pass_by):
        (short,), (long,) = await create(store), await create(store)
        memory = {short >> PARTITION_BITS: timedelta(0), long >> PARTITION_BITS: timedelta(hours=1)}
        key = new_hash()
        held = [replace(reservation(incarnation, 0, key), memory=kept) for incarnation, kept in memory.items()]
        appends = [with_keys(pid, key, memory=kept) for pid, kept in zip((short, long), memory.values(), strict=True)]
        await store.reserve(held, durable=True)
        await store.append(appends)
        await pass_by(RESERVATION_GRACE.total_seconds() + 1)
        if trims:
            await store.trim(memory)
        later = [replace(each, body_hash=new_hash(), partition=1) for each in held]
        assert await store.reserve(later, durable=True) == [later[0], held[1]]
        answers = await store.append(appends)
        assert isinstance(answers[0], Appended)
        assert isinstance(answers[1], Refused)
        assert list(answers[1].verdicts) == [duplicate(0, 0)]


async def test_a_reservation_outlives_the_append_that_it_led_to(backing: Backing) -> None:
    """S4: a first call fails after its reservation, and its retry appends the message a day later."""
    async with backing.aging_store() as (store, pass_by):
        (pid,) = await create(store)
        first = reservation(pid >> PARTITION_BITS, partition=0)
        await store.reserve([first], durable=True)
        await pass_by(DAY - 60)
        await store.reserve([first], durable=True)
        await appended(store, with_keys(pid, first.key_hash))
        await pass_by(DAY - 60)
        await store.trim({})
        retried = replace(first, partition=1)
        assert await store.reserve([retried], durable=True) == [first], "a retry goes to the partition of the append"
        assert isinstance(await append_one(store, with_keys(pid, first.key_hash)), Refused)


async def test_a_key_is_free_only_when_its_append_is_forgotten(backing: Backing) -> None:
    """Otherwise another message with this key is answered with the offset of the first one, and lost."""
    async with backing.aging_store() as (store, pass_by):
        (pid,) = await create(store)
        first = reservation(pid >> PARTITION_BITS)
        await store.reserve([first], durable=True)
        await pass_by(20)
        await appended(store, with_keys(pid, first.key_hash))
        other = replace(first, body_hash=new_hash())
        await pass_by(DAY - 10)
        await store.trim({})
        assert await store.reserve([other], durable=True) == [first]
        await pass_by(10 + RESERVATION_GRACE.total_seconds())
        await store.trim({})
        assert await store.reserve([other], durable=True) == [other]
        assert (await appended(store, with_keys(pid, first.key_hash))).base == 1


async def test_a_refused_body_does_not_prolong_a_reservation(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        (pid,) = await create(store)
        first = reservation(pid >> PARTITION_BITS)
        other = replace(first, body_hash=new_hash())
        await store.reserve([first], durable=True)
        await pass_by(DAY / 2)
        assert await store.reserve([other], durable=True) == [first]
        await pass_by(DAY / 2 + RESERVATION_GRACE.total_seconds())
        await store.trim({})
        assert await store.reserve([other], durable=True) == [other]
