"""Scheduled messages: stored, due, delivered once, cancelled, listed and refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import datetime, timedelta

from lakelog.storage.scheduled import (
    NewScheduled,
    ScheduledKey,
    ScheduledState,
    ScheduleResult,
    ScheduleStatus,
    StoredScheduled,
)
from lakelog.storage.store import Append, Appended, HeadState, KeyedMessage, PartitionStore, Payload, Refusal, Refused
from tests.contract.stores import Backing
from tests.contract.values import append_one, create, create_one, new_pids, read_all, with_keys

YEAR = timedelta(days=365)
HOUR = timedelta(hours=1)
DAY_SECONDS = 86_400.0


def new(
    pid: int, delay: timedelta | None = HOUR, at: datetime | None = None, expires_ms: int | None = None
) -> NewScheduled:
    key = ScheduledKey(pid=pid, mark=os.urandom(16))
    return NewScheduled(
        key=key, epoch=0, payload=os.urandom(20), delay=None if at else delay, at=at, expires_ms=expires_ms
    )


async def schedule(store: PartitionStore, *messages: NewScheduled) -> list[ScheduleResult]:
    return await store.scheduled.schedule(messages, longest=YEAR)


async def statuses(store: PartitionStore, *messages: NewScheduled) -> list[ScheduleStatus]:
    return [each.status for each in await schedule(store, *messages)]


async def due(store: PartitionStore, since: datetime | None = None, limit: int = 1000) -> list[StoredScheduled]:
    return await store.scheduled.due(since=since, limit=limit, max_bytes=1 << 30)


def to_append(pid: int, messages: Sequence[StoredScheduled | NewScheduled]) -> Append:
    return Append(
        pid=pid,
        epoch=0,
        payloads=[Payload(data=each.payload, count=1) for each in messages],
        keyed=[
            KeyedMessage(key_hash=each.key.mark, start=start, memory=each.memory) for start, each in enumerate(messages)
        ],
    )


def keys(messages: Sequence[StoredScheduled | NewScheduled]) -> list[ScheduledKey]:
    return [each.key for each in messages]


async def test_a_message_is_due_after_its_delay_and_then_delivered_once(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid = await create_one(store)
        message = new(pid, expires_ms=5000)
        before = await store.clock()
        (result,) = await schedule(store, message)
        assert result.status is ScheduleStatus.SCHEDULED
        assert before + HOUR <= result.due_at <= await store.clock() + HOUR
        assert await due(store) == []
        assert (await store.scheduled.next_due()).due_at == result.due_at
        assert (await store.scheduled.deliver([to_append(pid, [message])])) == ([], [message.key])
        await pass_by(3600)
        (stored,) = await due(store)
        assert (stored.key, stored.payload, stored.expires_ms) == (message.key, message.payload, 5000)
        (answer,), absent = await store.scheduled.deliver([to_append(pid, [stored])])
        assert isinstance(answer, Appended)
        assert (answer.base, absent) == (0, [])
        assert [each.payload for each in await read_all(store, pid)] == [message.payload]
        assert (await due(store), (await store.scheduled.next_due()).due_at) == ([], None)
        assert await store.scheduled.deliver([to_append(pid, [stored])]) == ([], [message.key])
        assert (await store.scheduled.find(message.key)).offset == 0


async def test_a_repeated_call_schedules_nothing_twice(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid = await create_one(store)
        message = new(pid)
        first, again = (await schedule(store, message))[0], (await schedule(store, message))[0]
        assert (again.status, again.due_at) == (ScheduleStatus.REPEATED, first.due_at)
        await pass_by(3600)
        await store.scheduled.deliver([to_append(pid, await due(store))])
        (late,) = await schedule(store, message)
        assert (late.status, late.offset) == (ScheduleStatus.PUBLISHED, 0)
        assert late.due_at <= await store.clock(), "not after its delivery by the delay of the repeated call"
        assert (await store.scheduled.next_due()).due_at is None
        await pass_by(DAY_SECONDS)
        assert await statuses(store, message) == [ScheduleStatus.SCHEDULED], "the mark is remembered for a day"


async def test_a_time_that_passed_is_not_stored(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        now = await store.clock()
        message = new(pid, at=now - HOUR)
        assert await statuses(store, message, new(pid, at=now + HOUR)) == [
            ScheduleStatus.PAST,
            ScheduleStatus.SCHEDULED,
        ]
        # The caller publishes it with its mark, and a repeat finds it in the log.
        assert isinstance(await append_one(store, with_keys(pid, message.key.mark)), Appended)
        assert await statuses(store, message) == [ScheduleStatus.PUBLISHED]


async def test_what_cannot_be_published_is_not_scheduled(backing: Backing) -> None:
    async with backing.store() as store:
        missing, (open_, sealed) = new_pids(1)[0], await create(store, 2)
        await store.heads_close([sealed], HeadState.SEALED)
        await store.epoch_raise([open_], 2)
        too_late = NewScheduled(key=new(open_).key, epoch=2, payload=b"a", delay=YEAR + HOUR)
        assert await statuses(store, new(missing), new(sealed), new(open_), too_late) == [
            ScheduleStatus.MISSING,
            ScheduleStatus.CLOSED,
            ScheduleStatus.EPOCH,
            ScheduleStatus.TOO_LATE,
        ]
        assert await store.scheduled.list([missing, open_, sealed], limit=9) == []


async def test_messages_are_due_in_the_order_of_their_times_and_then_of_their_call(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        one, other = await create(store, 2)
        at = await store.clock() + timedelta(minutes=2)
        same = [new(one, at=at) for _ in range(20)]
        last, first = new(other, HOUR), new(other, timedelta(minutes=1))
        await schedule(store, last, *same[:10])
        await schedule(store, *same[10:], first)
        await pass_by(3600)
        found = await due(store)
        assert keys(found) == keys([first, *same, last])
        assert keys(await due(store, limit=3)) == keys([first, *same[:2]])
        assert keys(await due(store, since=found[-1].due_at)) == [last.key]
        assert (await store.scheduled.next_due(found[-1].due_at)).due_at == found[-1].due_at
        short = await store.scheduled.due(limit=9, max_bytes=30)
        assert keys(short) == keys([first, same[0]]), "a limit of bytes ends after the message that reaches it"


async def test_several_partitions_are_delivered_at_once_with_their_own_epochs(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        one, other = await create(store, 2)
        messages = [new(one), new(other), new(one)]
        await schedule(store, *messages)
        await store.epoch_raise([other], 3)
        await pass_by(3600)
        answers, _ = await store.scheduled.deliver(
            [to_append(other, [messages[1]]), to_append(one, [messages[0], messages[2]])]
        )
        assert [each.pid for each in answers if isinstance(each, Appended)] == [other, one]
        assert [each.payload for each in await read_all(store, one)] == [messages[0].payload, messages[2].payload]
        assert [each.epoch for each in await read_all(store, other)] == [3]


async def test_one_absent_message_prevents_a_delivery_and_is_named(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        one, other = await create(store, 2)
        messages = [new(one), new(other), new(one)]
        await schedule(store, *messages)
        await pass_by(3600)
        await store.scheduled.cancel(messages[2].key)
        appends = [to_append(one, [messages[0], messages[2]]), to_append(other, [messages[1]])]
        assert await store.scheduled.deliver(appends) == ([], [messages[2].key])
        assert await read_all(store, one) == await read_all(store, other) == []
        assert keys(await due(store)) == keys(messages[:2])


async def test_a_message_that_is_in_the_log_already_is_removed_when_it_is_due(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid = await create_one(store)
        messages = [new(pid), new(pid)]
        await schedule(store, *messages)
        await append_one(store, with_keys(pid, messages[0].key.mark))
        await pass_by(3600)
        (answer,), absent = await store.scheduled.deliver([to_append(pid, messages)])
        assert isinstance(answer, Refused)
        assert (answer.refusal, [each.index for each in answer.verdicts], absent) == (Refusal.PARTS, [0], [])
        assert keys(await due(store)) == [messages[1].key]


async def test_a_cancelled_message_is_not_delivered_and_a_delivered_one_not_cancelled(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid = await create_one(store)
        message, other = new(pid), new(pid)
        await schedule(store, message, other)
        for _ in range(2):
            assert (await store.scheduled.cancel(message.key)).state is ScheduledState.CANCELLED
        assert await statuses(store, message) == [ScheduleStatus.REPEATED], "a repeated call does not revive it"
        await pass_by(3600)
        await store.scheduled.deliver([to_append(pid, await due(store))])
        found = await store.scheduled.cancel(other.key)
        assert (found.state, found.offset) == (None, 0)
        assert len(await read_all(store, pid)) == 1
        unknown = await store.scheduled.cancel(new(pid).key)
        assert (unknown.state, unknown.offset) == (None, None)
        assert await store.scheduled.trim() == 0
        await pass_by(DAY_SECONDS + 1)
        assert await store.scheduled.trim() == 1
        assert (await store.scheduled.find(message.key)).state is None


async def test_of_a_cancellation_and_a_delivery_exactly_one_happens(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        for _ in range(30):
            message = new(pid, timedelta(microseconds=1))
            await schedule(one, message)
            (answers, absent), found = await asyncio.gather(
                one.scheduled.deliver([to_append(pid, [message])]), other.scheduled.cancel(message.key)
            )
            is_delivered = bool(answers)
            assert is_delivered is not bool(absent)
            assert is_delivered is not (found.state is ScheduledState.CANCELLED)
            assert is_delivered is (found.offset is not None)


async def test_two_deliveries_of_the_same_messages_append_them_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pids = await create(one, 3)
        messages = [new(pid, timedelta(microseconds=1)) for pid in pids for _ in range(5)]
        await schedule(one, *messages)
        appends = [to_append(pid, [each for each in messages if each.key.pid == pid]) for pid in pids]
        results = await asyncio.gather(one.scheduled.deliver(appends), other.scheduled.deliver(appends[::-1]))
        assert sorted(bool(answers) for answers, _ in results) == [False, True]
        for pid in pids:
            assert len(await read_all(one, pid)) == 5


async def test_a_refused_message_is_not_due_any_more(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        pid = await create_one(store)
        message, unlisted = new(pid), new(pid)
        await schedule(store, message)
        await schedule(store, unlisted)
        await store.heads_close([pid], HeadState.DELETED)
        await pass_by(3600)
        (answer,), _ = await store.scheduled.deliver([to_append(pid, [message])])
        assert isinstance(answer, Refused)
        assert answer.refusal is Refusal.CLOSED
        assert await store.scheduled.refuse([message.key], is_listed=True) == 1
        assert await store.scheduled.refuse([message.key], is_listed=True) == 0
        assert await store.scheduled.refuse([unlisted.key], is_listed=False) == 1
        assert await due(store) == []
        assert (await store.scheduled.find(message.key)).state is ScheduledState.REFUSED
        await pass_by(DAY_SECONDS + 1)
        assert await store.scheduled.trim() == 1
        found = [(await store.scheduled.find(each.key)).state for each in (message, unlisted)]
        assert found == [None, ScheduledState.REFUSED], "the content of the other one is only here"


async def test_waiting_messages_are_listed_by_their_due_time_in_pages(backing: Backing) -> None:
    async with backing.store() as store:
        pids = await create(store, 3)
        messages = [new(pid, timedelta(minutes=minutes)) for minutes in range(1, 6) for pid in pids]
        at = await store.clock() + HOUR
        messages += [new(pids[0], at=at) for _ in range(4)]
        await schedule(store, *messages)
        await store.scheduled.cancel(messages[0].key)
        everything = await store.scheduled.list(pids[:2], limit=100)
        expected = [each for each in messages[1:] if each.key.pid in pids[:2]]
        assert {each.key for each in everything} == set(keys(expected))
        assert [each.due_at for each in everything] == sorted(each.due_at for each in everything)
        pages: list[StoredScheduled] = []
        while page := await store.scheduled.list(
            pids[:2], after=(pages[-1].due_at, pages[-1].key) if pages else None, limit=3
        ):
            pages += page
        assert pages == everything
