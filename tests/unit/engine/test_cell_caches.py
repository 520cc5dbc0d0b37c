"""After a drop nothing is answered from what a cell once had: offsets and versions may mean something else by now."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakelog.batches import decode, to_messages
from lakelog.coordinator.leasing.codec import encode_state
from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import LakelogError, Unavailable
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.storage.memory import MemoryCatalog, MemoryStore

WISH: dict[str, Any] = {"start_from": "earliest"}
_PARTS = {
    "": ("_partitions",),
    "_hot": ("tables",),
    "groups": ("_journals", "_members", "_dead", "_seen"),
    "cold": ("_segments",),
}


class Standby:
    """The data that a standby has received of a store. `promote` replaces the store with it: the rest is lost."""

    def __init__(self, store: MemoryStore) -> None:
        self._parts = [
            vars(getattr(store, owner) if owner else store)[name] for owner, names in _PARTS.items() for name in names
        ]
        self._received = copy.deepcopy(self._parts)

    def promote(self) -> None:
        for part, received in zip(self._parts, self._received, strict=True):
            part.clear()
            part.update(received)


@dataclass(kw_only=True)
class World:
    """`engine` has caches; `other` is a process that began after the failover."""

    engine: Engine
    other: Engine
    store: MemoryStore
    scope: Scope
    topic: Topic
    held: dict[str, asyncio.Event] = field(default_factory=dict)

    async def publish(self, engine: Engine, *values: bytes) -> list[int]:
        sent = await engine.publisher.messages(self.scope, "orders", [Message(value=value) for value in values])
        return [receipt.offset for receipt in sent if not isinstance(receipt, LakelogError)]

    async def consume(self, engine: Engine, owner: str = "ann", count: int = 10) -> list[Leased]:
        ask = ConsumeRequest(topic="orders", group="billing", owner=owner, max_messages=count, **WISH)
        return list((await engine.leases.consume(self.scope, ask)).leases)

    async def say(self, engine: Engine, lease: Leased, verb: Verb, owner: str = "ann") -> Answered | LakelogError:
        answer = LeaseAnswer(
            verb=verb,
            partition=0,
            token=lease.token,
            offsets=tuple(lease.offsets),
            reason="boom",
        )
        return (await engine.leases.answer(self.scope, "orders", "billing", owner, [answer]))[0]

    def hold(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
        """The next call of that name sets the event when it was answered, and returns when `held[name]` is set."""
        call: Callable[..., Awaitable[object]] = getattr(owner, name)
        gate = asyncio.Event()

        async def held(*arguments: object, **options: object) -> object:
            monkeypatch.setattr(owner, name, call)
            answer = await call(*arguments, **options)
            self.held[name] = answered = asyncio.Event()
            gate.set()
            await answered.wait()
            return answer

        monkeypatch.setattr(owner, name, held)
        return gate


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """The first message is published, handled, and received by the standby that a test makes."""
    catalog, store = MemoryCatalog(), MemoryStore()
    engine, other = Engine(catalog, {0: store}), Engine(catalog, {0: store})
    await engine.start()
    await other.start()
    scope = await catalog.scope_create("p", "e")
    topic = await engine.topics.create(scope, "orders", 1)
    its = World(engine=engine, other=other, store=store, scope=scope, topic=topic)
    await its.publish(engine, b"m0")
    (lease,) = await its.consume(engine)
    assert await its.say(engine, lease, Verb.ACK) == Answered()
    try:
        yield its
    finally:
        await engine.close()
        await other.close()


def values(leases: list[Leased]) -> list[tuple[int, bytes | None]]:
    return [
        (offset, to_messages(decode(piece.batch.payload))[offset - piece.batch.base].value)
        for lease in leases
        for piece in lease.pieces
        for offset in piece.offsets
    ]


async def test_S3_nothing_of_a_dropped_cell_is_answered_from_memory() -> None:
    async with world() as its:
        engine, other, scope = its.engine, its.other, its.scope
        standby = Standby(its.store)
        assert await its.publish(engine, b"lost-1", b"lost-2", b"lost-3") == [1, 2, 3]
        (lost,) = await its.consume(engine, count=2)
        await its.say(engine, lost, Verb.ACK)
        await engine.members.join(scope, JoinRequest(group="billing", topics=["orders"], member_id="ann"))
        await engine.groups.lag(scope, "billing")
        standby.promote()
        # The same offsets, and the same versions of journal and members, with other contents.
        assert await its.publish(other, b"new-1", b"new-2", b"new-3") == [1, 2, 3]
        (lease,) = await its.consume(other, "bob", count=1)
        await its.say(other, lease, Verb.ACK, "bob")
        await other.members.join(scope, JoinRequest(group="billing", topics=["orders"], member_id="bob"))
        engine.caches.drop(0)
        assert values(await its.consume(engine)) == [(2, b"new-2"), (3, b"new-3")]
        group = await engine.group_directory.resolve(scope, "billing", create=False)
        group_topic = await engine.group_directory.group_topic(group, its.topic)
        (mine,), (theirs,) = [
            await each._journals.states(group, its.topic, group_topic, [0]) for each in (engine, other)
        ]
        assert encode_state(mine) == encode_state(theirs)
        assert await engine.groups.lag(scope, "billing") == await other.groups.lag(scope, "billing")
        assert [each.member_id for each in (await engine.members.describe(group)).members] == ["bob"]


async def test_a_drop_leaves_other_cells_alone() -> None:
    async with world() as its:
        group = await its.engine.group_directory.resolve(its.scope, "billing", create=False)
        journal = its.engine._journals._journals[group.group_id, its.topic.pid(0)]
        row = its.engine._batch_cache.row(its.topic.pid(0))
        its.engine._committers[1] = its.engine._committers[0]
        its.engine.caches.drop(1)
        assert journal.state is not None and its.engine._batch_cache.row(its.topic.pid(0)) is row
        its.engine.caches.drop(0)
        assert journal.state is None and its.engine._batch_cache.row(its.topic.pid(0)) is not row


async def test_calls_that_wait_go_on_after_a_drop() -> None:
    async with world() as its:
        ask = ConsumeRequest(topic="orders", group="billing", owner="ann", wait_ms=20000, **WISH)
        waiting = asyncio.create_task(its.engine.leases.consume(its.scope, ask))
        await asyncio.sleep(0.05)
        its.engine.caches.drop(0)
        await its.publish(its.other, b"m1")
        assert values(list((await waiting).leases)) == [(1, b"m1")]


@pytest.mark.parametrize("name", ["journals_read", "read_many"])
async def test_S3_a_read_under_way_is_not_remembered_after_a_drop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as its:
        engine, other = its.engine, its.other
        standby = Standby(its.store)
        assert await its.publish(other, b"lost-1") == [1]
        if name == "journals_read":
            await its.say(other, (await its.consume(other))[0], Verb.ACK)
        # Nothing is known of it here yet: each call has to read.
        engine.caches.drop(0)
        gate = its.hold(its.store.groups if name == "journals_read" else its.store, name, monkeypatch)
        group_topic = asyncio.create_task(its.consume(engine))
        await asyncio.wait_for(gate.wait(), 5)
        standby.promote()
        assert await its.publish(other, b"new-1") == [1]
        engine.caches.drop(0)
        its.held[name].set()
        assert values(await group_topic) == [(1, b"new-1")]


async def test_S3_a_decision_that_waits_for_a_dead_letter_is_made_again_after_a_drop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as its:
        engine = its.engine
        await its.publish(engine, b"m1")
        (lease,) = await its.consume(engine)
        standby = Standby(its.store)
        row = engine._batch_cache.row(its.topic.pid(0))
        engine._batch_cache._forget(row, 0, len(row.batches))
        gate = its.hold(engine.extents, "read", monkeypatch)
        failing = asyncio.create_task(its.say(engine, lease, Verb.FAIL))
        await asyncio.wait_for(gate.wait(), 5)
        standby.promote()
        engine.caches.drop(0)
        its.held["read"].set()
        assert isinstance(await failing, Unavailable)
        failed = await its.say(engine, lease, Verb.FAIL)
        assert isinstance(failed, Answered) and failed.dead == [1]


async def test_S8_a_decision_that_is_not_written_yet_is_made_again_after_a_drop() -> None:
    """Its version may be the next one of another history."""
    async with world() as its:
        engine, other = its.engine, its.other
        await its.publish(engine, b"m1", b"m2")
        (lease,) = await its.consume(engine, count=1)
        queue = engine._journals._queues[0]
        commit = queue._commit

        async def dropped(turns: object) -> None:
            engine.caches.drop(0)
            await commit(turns)  # type: ignore[arg-type]

        queue._commit = dropped  # type: ignore[method-assign]
        acking = asyncio.create_task(its.say(engine, lease, Verb.ACK))
        await asyncio.sleep(0)
        queue._commit = commit  # type: ignore[method-assign]
        assert await acking == Answered()
        (next_one,) = await its.consume(other, "bob")
        assert values([next_one]) == [(2, b"m2")]


async def test_S3_an_append_under_way_is_not_kept_in_memory_after_a_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as its:
        engine, other = its.engine, its.other
        standby = Standby(its.store)
        gate = its.hold(its.store, "append", monkeypatch)
        publishing = asyncio.create_task(its.publish(engine, b"lost-1"))
        await asyncio.wait_for(gate.wait(), 5)
        standby.promote()
        engine.caches.drop(0)
        # The end of the log is where the lost message was.
        assert await its.consume(engine) == []
        its.held["append"].set()
        await publishing
        assert await its.publish(other, b"new-1") == [1]
        assert values(await its.consume(engine)) == [(1, b"new-1")]
