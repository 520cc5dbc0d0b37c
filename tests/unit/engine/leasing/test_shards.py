"""Servers that share a large topic: each delivers its shard first, and messages that another server leaves later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import ready_partitions, watcher
from lakelog.engine.leasing.consuming import ConsumeResult, Leased
from lakelog.model.group import Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.shard import WHOLE, Shard
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import started

PARTITIONS = 8
SHARDS = [Shard(index=0, count=2), Shard(index=1, count=2)]
NATIVE, FOREIGN = 1, 6
"""A partition of the first shard, and one of the second."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_partitions, "HELP_SECONDS", 0.3)
    monkeypatch.setattr(watcher, "WATCH_SECONDS", 0.1)


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[Engine, Engine, Scope]]:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as two:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", PARTITIONS)
        for engine, shard in zip((one, two), SHARDS, strict=True):
            # Everything was looked at once.
            assert not (await consume(engine, scope, shard, owner="first", wait_ms=0)).leases
        yield one, two, scope


async def consume(
    engine: Engine, scope: Scope, shard: Shard, *, owner: str = "ann", wait_ms: int = 5000
) -> ConsumeResult:
    ask = ConsumeRequest(
        topic="orders",
        group="billing",
        owner=owner,
        max_messages=10,
        isolates=True,
        wait_ms=wait_ms,
        start_from="earliest",
    )
    return await engine.leases.consume(scope, ask, shard=shard)


async def publish(engine: Engine, scope: Scope, partition: int, key: bytes | None = None, value: bytes = b"x") -> None:
    await engine.publisher.messages(scope, "orders", [Message(value=value, key=key, partition=partition)])


async def ack(engine: Engine, scope: Scope, consumed: ConsumeResult, owner: str) -> None:
    answers = [
        LeaseAnswer(verb=Verb.ACK, partition=each.partition, token=each.token, offsets=tuple(each.offsets))
        for each in consumed.leases
    ]
    outcomes = await engine.leases.answer(scope, "orders", "billing", owner, answers)
    assert all(isinstance(each, Answered) for each in outcomes), outcomes


@pytest.mark.parametrize(("partition", "is_late"), [(NATIVE, False), (FOREIGN, True)])
async def test_L1_a_message_of_another_shard_comes_after_a_while(
    partition: int, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_late:
        monkeypatch.setattr(ready_partitions, "HELP_SECONDS", 4.0)
    async with two_servers() as (one, _, scope):
        began = time.monotonic()
        waiting = asyncio.create_task(consume(one, scope, SHARDS[0]))
        await asyncio.sleep(0)
        await publish(one, scope, partition)
        (lease,) = (await waiting).leases
        assert lease.partition == partition
        assert (time.monotonic() - began >= ready_partitions.HELP_SECONDS) is is_late


async def test_a_call_that_does_not_wait_gets_messages_of_all_shards() -> None:
    async with two_servers() as (one, two, scope):
        await publish(two, scope, FOREIGN)
        (lease,) = (await consume(one, scope, SHARDS[0], wait_ms=0)).leases
        assert lease.partition == FOREIGN


async def test_a_message_goes_to_the_server_of_its_shard_without_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_servers() as (one, two, scope):
        here = asyncio.create_task(consume(one, scope, SHARDS[0], owner="ann", wait_ms=1000))
        there = asyncio.create_task(consume(two, scope, SHARDS[1], owner="bob"))
        await asyncio.sleep(0.05)
        tried: list[object] = []
        submit = one.leases._context.journals.submit
        monkeypatch.setattr(
            one.leases._context.journals, "submit", lambda *given: (tried.append(given), submit(*given))[1]
        )
        await publish(one, scope, FOREIGN)
        (lease,) = (await there).leases
        assert lease.partition == FOREIGN and not (await here).leases
        assert not tried, "the first server saw that the other one had delivered it"


@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
async def test_the_partitions_of_a_member_are_those_of_the_server_that_it_calls(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_partitions, "HELP_SECONDS", 4.0)
    async with two_servers() as (one, two, scope):
        await one.groups.delete(scope, "billing")
        owners = {"ann": (one, SHARDS[0]), "bob": (two, SHARDS[1])}
        for owner in owners:
            await one.members.join(
                scope,
                JoinRequest(group="billing", topics=("orders",), member_id=owner, start_from="earliest", order=order),
            )
        described = await one.groups.describe(scope, "billing")
        own = {member.member_id: set(member.assigned["orders"]) for member in described.members}
        waiting = {
            owner: asyncio.create_task(
                engine.leases.consume(
                    scope,
                    ConsumeRequest(
                        topic="orders",
                        group="billing",
                        owner=owner,
                        member_id=owner,
                        max_messages=PARTITIONS,
                        isolates=True,
                        wait_ms=5000,
                    ),
                    shard=shard,
                )
            )
            for owner, (engine, shard) in owners.items()
        }
        await asyncio.sleep(0.05)
        await one.publisher.messages(scope, "orders", [Message(value=b"x", partition=n) for n in range(PARTITIONS)])
        found = {owner: {lease.partition for lease in (await each).leases} for owner, each in waiting.items()}
        assert all(found[owner] and found[owner] <= own[owner] for owner in owners), (found, own)


async def test_S15_keys_stay_in_order_while_shards_move() -> None:
    """Both servers believe now and then that a partition, or the whole topic, is theirs."""
    messages, keys = 400, 40
    async with two_servers() as (one, two, scope):
        for number in range(messages):
            key = number % keys
            await publish(one, scope, key % PARTITIONS, key=b"%d" % key, value=b"%d" % number)
        taken: dict[tuple[int, int], int] = {}
        held: set[tuple[int, bytes]] = set()

        async def work(engine: Engine, owner: str, shards: list[Shard]) -> None:
            turn = 0
            while len(taken) < messages:
                turn += 1
                consumed = await consume(engine, scope, shards[turn % len(shards)], owner=owner, wait_ms=100)
                running = {(lease.partition, key) for lease in consumed.leases for key in keys_of(lease)}
                assert not held & running, "a key is delivered to one owner at a time"
                held.update(running)
                for lease in consumed.leases:
                    for offset in lease.offsets:
                        assert (lease.partition, offset) not in taken, "delivered twice"
                        taken[lease.partition, offset] = turn
                await asyncio.sleep(0)
                held.difference_update(running)
                await ack(engine, scope, consumed, owner)

        workers = (
            work(one, "ann", [SHARDS[0], WHOLE]),
            work(one, "cyd", [SHARDS[0], SHARDS[1]]),
            work(two, "bob", [SHARDS[1], SHARDS[0], WHOLE]),
        )
        await asyncio.wait_for(asyncio.gather(*workers), 60)
        described = await one.groups.describe(scope, "billing")
        assert sum(each.acked for each in described.progress) == messages and described.lag == 0


def keys_of(lease: Leased) -> set[bytes]:
    return {
        piece.decoded.column("key")[offset - piece.batch.base].as_py()
        for piece in lease.pieces
        for offset in piece.offsets
    }
