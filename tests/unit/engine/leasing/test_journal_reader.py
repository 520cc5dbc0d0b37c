"""Progress for those who only look: what the whole journal gives, and only what is new is read for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lakelog.coordinator.leasing.codec import encode_state
from lakelog.engine import Engine
from lakelog.engine.leasing import decider, journal_reader
from lakelog.engine.leasing.journal_reader import GroupPartitions, JournalReader
from lakelog.model.group import Group, GroupTopic
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import JournalRead, JournalRequest
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

ASK = ConsumeRequest(topic="orders", group="billing", owner="ann", max_messages=3, start_from="earliest")


async def worked(engine: Engine, scope: Scope) -> None:
    """Some messages; one of each lease is acked, one returned, one still leased."""
    await publish(engine, scope, "orders", *map(text, "abc"))
    (lease,) = (await engine.leases.consume(scope, ASK)).leases
    said = {Verb.ACK: lease.offsets[0], Verb.NACK: lease.offsets[1]}
    answers = [LeaseAnswer(verb=verb, partition=0, token=lease.token, offsets=(at,)) for verb, at in said.items()]
    await engine.leases.answer(scope, "orders", "billing", "ann", answers)


def asked(group: Group, topic: Topic, group_topic: GroupTopic, partitions: Sequence[int]) -> GroupPartitions:
    return GroupPartitions(group=group, topic=topic, group_topic=group_topic, partitions=partitions)


async def seen(looker: JournalReader, engine: Engine, scope: Scope, topic: Topic) -> bytes:
    group = await engine.group_directory.resolve(scope, "billing", create=False)
    group_topic = await engine.group_directory.group_topic(group, topic)
    ((state,),) = await looker.read([asked(group, topic, group_topic, [0])])
    found = encode_state(state)
    # It is the caller's own.
    state.frontier += 1000
    return found


@pytest.mark.parametrize("every", [3, 1000], ids=["with snapshots between", "without"])
async def test_S14_who_looks_again_sees_what_the_whole_journal_says(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(decider, "SNAPSHOT_EVERY", every)
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=1)
        looker = JournalReader({0: store})
        for _ in range(12):
            await worked(engine, scope)
            both = await asyncio.gather(*(seen(looker, engine, scope, topic) for _ in range(2)))
            assert {*both} == {await seen(JournalReader({0: store}), engine, scope, topic)}


async def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    rows = []
    right = store.groups.journals_read

    async def counted(asks: Sequence[JournalRequest]) -> list[JournalRead]:
        found = await right(asks)
        rows.append(len(found[0].rows))
        return found

    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=1)
        for _ in range(5):
            await worked(engine, scope)
        looker = JournalReader({0: store})
        monkeypatch.setattr(store.groups, "journals_read", counted)
        for _ in range(2):
            await seen(looker, engine, scope, topic)
        assert rows[0] > 9 and rows[1] == 0
        monkeypatch.setattr(journal_reader, "KEEP", 0)
        for _ in range(2):
            await seen(looker, engine, scope, topic)
        assert rows[2] == 0 and rows[3] == rows[0], "and not more of it is kept than there is room for"


async def test_many_journals_are_read_in_several_statements_and_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=5)
        await publish(engine, scope, "orders", *map(text, "abcdefgh"))
        assert (await engine.leases.consume(scope, ASK)).leases
        group = await engine.group_directory.resolve(scope, "billing", create=False)
        group_topic = await engine.group_directory.group_topic(group, topic)
        every = [asked(group, topic, group_topic, range(5))]
        (whole,) = await JournalReader({0: store}).read(every)
        monkeypatch.setattr(journal_reader, "KEEP", 4)
        monkeypatch.setattr(journal_reader, "READ_TOGETHER", 2)
        sizes: list[int] = []
        read = store.groups.journals_read

        async def counted(asks: Sequence[JournalRequest]) -> list[JournalRead]:
            sizes.append(len(asks))
            return await read(asks)

        monkeypatch.setattr(store.groups, "journals_read", counted)
        looker = JournalReader({0: store})
        for _ in range(2):
            (again,) = await looker.read(every)
            assert [encode_state(state) for state in again] == [encode_state(state) for state in whole]
        assert sizes == [2, 2, 1] * 2 and not looker._kept
