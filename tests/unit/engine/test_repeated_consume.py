"""A consume that was repeated: one of its two calls fails, and does not take from the owner what the other told it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakelog.engine.consuming import Answer, Answered, ConsumeAsk, Piece, Verb
from lakelog.errors import Unavailable
from lakelog.model.group import GroupWish
from lakelog.model.position import Earliest
from lakelog.model.topic import Topic
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

ASK = ConsumeAsk(topic="orders", group="billing", owner="ann", request_id="r-1", wish=GroupWish(start=Earliest()))


async def test_S8_a_call_that_fails_does_not_give_back_what_its_repeat_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("one"))
        told = (await engine.leases.consume(scope, ASK)).leases[0]

        async def lost(topic: Topic, partition: int, offsets: Sequence[int]) -> list[Piece]:
            raise Unavailable()

        with monkeypatch.context() as broken:
            broken.setattr(engine._shelf, "pieces", lost)
            with pytest.raises(Unavailable):
                await engine.leases.consume(scope, ASK)
        await engine._ledgers.drain()

        ack = Answer(verb=Verb.ACK, partition=0, token=told.token, ranges=[(0, 1)])
        assert await engine.leases.answer(scope, "orders", "billing", "ann", [ack]) == [Answered()]


async def test_a_lease_that_nobody_was_told_of_goes_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("one"))

        async def lost(topic: Topic, partition: int, offsets: Sequence[int]) -> list[Piece]:
            raise Unavailable()

        with monkeypatch.context() as broken:
            broken.setattr(engine._shelf, "pieces", lost)
            with pytest.raises(Unavailable):
                await engine.leases.consume(scope, ASK)
        await engine._ledgers.drain()

        assert (await engine.groups.lag(scope, "billing"))[0].leased == 0
