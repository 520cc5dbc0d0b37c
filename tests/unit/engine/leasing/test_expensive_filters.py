"""An expensive filter delays its own group, and no other call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import exclusions as module
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore

COSTLY = "value like '%" + "a_" * 20 + "b%'"


@asynccontextmanager
async def started(*messages: bytes) -> AsyncIterator[tuple[Engine, Scope]]:
    engine = Engine(MemoryCatalog(), {0: MemoryStore()})
    await engine.start()
    scope = await engine.catalog.scope_create("shop", "test")
    await engine.topics.create(scope, "orders", 1)
    for value in messages:
        await engine.publisher.messages(scope, "orders", [Message(value=value)])
    try:
        yield engine, scope
    finally:
        await engine.close()


async def longest_stall(stop: asyncio.Event) -> float:
    """Return the most CPU time between two turns of the event loop. The machine may pause."""
    longest = 0.0
    while not stop.is_set():
        begun = time.process_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.process_time() - begun)
    return longest


async def consume(engine: Engine, scope: Scope, text: str, want: int = 10) -> list[bytes]:
    ask = ConsumeRequest(
        topic="orders",
        group="g",
        owner="ann",
        max_messages=want,
        wait_ms=20_000,
        start_from="earliest",
        filter=text,
    )
    consumed = await engine.leases.consume(scope, ask)
    return [
        piece.decoded.column("value")[offset - piece.batch.base].as_py()
        for leased in consumed.leases
        for piece in leased.pieces
        for offset in piece.offsets
    ]


async def test_a_filter_that_takes_long_does_not_stop_the_event_loop() -> None:
    wanted = b"a" * 40 + b"b"
    async with started(b"a" * (256 << 10), wanted) as (engine, scope):
        stop = asyncio.Event()
        watching = asyncio.create_task(longest_stall(stop))
        begun = time.process_time()
        assert await consume(engine, scope, COSTLY) == [wanted]
        took = time.process_time() - begun
        stop.set()
        # Before, the loop stood still for the whole evaluation.
        assert await watching < max(0.1, took / 4)


async def test_no_turn_of_the_event_loop_takes_more_than_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    advance, complete = module.Exclusions.advance, module.Exclusions.complete

    def advanced(self: module.Exclusions, steps: int) -> int:
        turns.append(advance(self, steps))
        return turns[-1]

    def completed(self: module.Exclusions) -> None:
        turns.append(self.steps)
        complete(self)

    monkeypatch.setattr(module.Exclusions, "advance", advanced)
    monkeypatch.setattr(module.Exclusions, "complete", completed)
    wanted = b"a" * 40 + b"b"
    async with started(b"a" * (256 << 10), wanted) as (engine, scope):
        assert await consume(engine, scope, COSTLY) == [wanted]
    # Three milliseconds. The whole evaluation takes more than 10 million steps.
    assert sum(turns) > 10_000_000 and max(turns) <= 3_000_000


async def test_messages_are_delivered_before_all_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVALUATION_STEPS", 1)
    engine_calls: list[int] = []
    advance = module.Exclusions.advance

    def counted(self: module.Exclusions, steps: int) -> int:
        engine_calls.append(self.until)
        return advance(self, steps)

    monkeypatch.setattr(module.Exclusions, "advance", counted)
    monkeypatch.setattr(module, "SLICE_STEPS", 1)
    monkeypatch.setattr(module, "SLICE_SECONDS", 0.0)
    async with started() as (engine, scope):
        # One batch of two messages: the decision is made when the first one is evaluated.
        await engine.publisher.messages(scope, "orders", [Message(value=b"xb" * 40_000), Message(value=b"xb" * 40_000)])
        assert len(await consume(engine, scope, "value like '%b%'", want=1)) == 1
        assert max(engine_calls) == 0


async def test_an_expensive_filter_skips_and_selects_as_a_cheap_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"%d" % number + b"x" * (number % 7) for number in range(200)]
    async with started() as (engine, scope):
        await engine.publisher.messages(scope, "orders", [Message(value=value) for value in values])
        for name in ("INLINE_STEPS", "EVALUATION_STEPS", "SLICE_STEPS"):
            monkeypatch.setattr(module, name, 1)
        monkeypatch.setattr("lakelog.engine.leasing.batch_cache.INLINE_STEPS", 1)
        monkeypatch.setattr(module, "SLICE_SECONDS", 0.0)
        found: list[bytes] = []
        while len(found) < sum(value.endswith(b"xxx") for value in values):
            found += await consume(engine, scope, "value like '%xxx'", want=7)
    assert found == [value for value in values if value.endswith(b"xxx")]


async def test_answers_of_the_group_do_not_wait_for_its_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(b"a" * 40 + b"b") as (engine, scope):
        ask = ConsumeRequest(topic="orders", group="g", owner="ann", start_from="earliest", filter=COSTLY)
        (leased,) = (await engine.leases.consume(scope, ask)).leases
        gate = asyncio.Event()
        monkeypatch.setattr(module.FilterEvaluator, "_pause", lambda self: gate.wait())
        await engine.publisher.messages(scope, "orders", [Message(value=b"a" * (64 << 10))])
        waiting = asyncio.create_task(consume(engine, scope, COSTLY))
        await asyncio.sleep(0)
        answer = LeaseAnswer(verb=Verb.ACK, partition=0, token=leased.token, offsets=tuple(leased.offsets))
        (answered,) = await asyncio.wait_for(engine.leases.answer(scope, "orders", "g", "ann", [answer]), 2)
        assert not isinstance(answered, Exception) and not waiting.done()
        gate.set()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
