"""A consume that was repeated: one of its two calls fails, and does not take from the owner what the other told it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import Leased, LeasedBatch
from lakelog.errors import Unavailable
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.topic import Scope, Topic
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

ASK = ConsumeRequest(topic="orders", group="billing", owner="ann", request_id="r-1", start_from="earliest")


@asynccontextmanager
async def losing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, until: asyncio.Event | None = None
) -> AsyncIterator[asyncio.Event]:
    """Leases are granted, and their messages cannot be had: at once, or when `until` says so."""
    reached = asyncio.Event()

    async def lost(topic: Topic, partition: int, offsets: Sequence[int]) -> list[LeasedBatch]:
        reached.set()
        if until is not None:
            await until.wait()
        raise Unavailable()

    with monkeypatch.context() as broken:
        broken.setattr(engine._batch_cache, "pieces", lost)
        yield reached
    await engine._journals.drain()


async def acked(engine: Engine, scope: Scope, told: Leased) -> bool:
    ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=told.token, offsets=(0,))
    return await engine.leases.answer(scope, "orders", "billing", "ann", [ack]) == [Answered()]


async def test_S8_a_call_that_fails_does_not_give_back_what_its_repeat_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("one"))
        told = (await engine.leases.consume(scope, ASK)).leases[0]
        async with losing(engine, monkeypatch):
            with pytest.raises(Unavailable):
                await engine.leases.consume(scope, ASK)
        assert await acked(engine, scope, told)


async def test_S8_a_call_that_fails_does_not_give_back_what_another_server_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other server decided by what it knew, was refused, and found the lease when it decided again."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders")
        assert not (await other.leases.consume(scope, ASK)).leases
        await publish(other, scope, "orders", text("one"))
        failing = asyncio.Event()
        async with losing(one, monkeypatch, failing) as granted:
            call = asyncio.create_task(one.leases.consume(scope, ASK))
            await granted.wait()
            told = (await other.leases.consume(scope, ASK)).leases[0]
            failing.set()
            with pytest.raises(Unavailable):
                await call
        assert await acked(other, scope, told)


async def test_a_lease_that_nobody_was_told_of_goes_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("one"))
        async with losing(engine, monkeypatch):
            with pytest.raises(Unavailable):
                await engine.leases.consume(scope, ASK)
        assert (await engine.groups.lag(scope, "billing"))[0].leased == 0
