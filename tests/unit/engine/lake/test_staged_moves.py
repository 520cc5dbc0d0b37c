"""Writes during which partitions are added: their keyed messages move, in order, once, whoever repeats the decision."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from lakelog.batches import encode, from_messages, partition_of
from lakelog.engine import Engine
from lakelog.engine.lake import staged_moves
from lakelog.errors import EpochChanged, Unavailable
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.model.write import DecideOptions, GrowthRule, StagePiece, Written
from tests.unit.engine.lake.test_writes import deciding, everything, piece, staging
from tests.unit.engine.support import WatchedStore, one_engine

KEYS = [f"k{number}" for number in range(12)]


async def stage_keyed(engine: Engine, scope: Scope, topic: Topic, *, attempt: str = "a", rounds: int = 3) -> int:
    """Stage each key once per round, in batches as a sink cuts them. Return the number of messages."""
    pieces = []
    for turn in range(rounds):
        for partition in range(topic.partitions):
            found = [
                Message(key=key.encode(), value=f"{key}:{attempt}{turn}".encode())
                for key in KEYS
                if partition_of(key.encode(), topic.partitions) == partition
            ]
            payload = encode(from_messages(found))
            pieces.append(StagePiece(partition=partition, number=turn, count=len(found), payload=payload))
    await engine.writes.stage(scope, "orders", staging(topic, attempt), pieces)
    return rounds * len(KEYS)


def check_moved(found: list[list[str]], attempts: str, rounds: int = 3) -> None:
    """Check that each message is once in the partition of its key, in the order of its attempt."""
    for partition, values in enumerate(found):
        for key in KEYS:
            mine = [value for value in values if value.startswith(f"{key}:")]
            is_here = partition_of(key.encode(), len(found)) == partition
            assert mine == ([f"{key}:{each}{turn}" for each in attempts for turn in range(rounds)] if is_here else [])


def moving(options: DecideOptions) -> DecideOptions:
    return replace(options, growth=GrowthRule.MOVE)


async def test_keyed_messages_move_to_the_partitions_of_their_keys_and_keep_their_order() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        counts = [await stage_keyed(engine, scope, topic, attempt=attempt) for attempt in "ab"]
        await engine.topics.alter(scope, "orders", partitions=5)
        wish = deciding(topic, sum(counts), "a", "b")
        with pytest.raises(EpochChanged):
            await engine.writes.decide(scope, "orders", wish)
        results = await asyncio.gather(*(engine.writes.decide(scope, "orders", moving(wish)) for _ in range(3)))
        assert results == [Written(count=72, won=True)] * 3
        check_moved(await everything(engine, scope, 5), "ab")
        # A caller whose answer was lost asks again, also when the write is finished and its attempts are forgotten.
        assert await engine.writes.decide(scope, "orders", moving(wish)) == results[0]
        other = await engine.writes.decide(scope, "orders", moving(deciding(topic, 36, "b")))
        assert other == Written(count=72, won=False)
        check_moved(await everything(engine, scope, 5), "ab")


async def test_attempts_that_saw_different_numbers_of_partitions_are_written_together() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        old = await engine.topics.create(scope, "orders", 2)
        count = await stage_keyed(engine, scope, old, attempt="a")
        new = await engine.topics.alter(scope, "orders", partitions=3)
        count += await stage_keyed(engine, scope, new, attempt="b")
        assert (await engine.writes.decide(scope, "orders", moving(deciding(old, count, "a", "b")))).won
        check_moved(await everything(engine, scope, 3), "ab")


async def test_a_move_that_was_interrupted_continues_also_after_partitions_were_added_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        count = await stage_keyed(engine, scope, topic)
        await engine.topics.alter(scope, "orders", partitions=3)
        wish = moving(deciding(topic, count))
        monkeypatch.setattr(staged_moves, "_CALL_SECONDS", 0.0)
        with pytest.raises(Unavailable, match=r"1 of 2 shares of its messages are moved; try again to continue\."):
            await engine.writes.decide(scope, "orders", wish)
        await engine.topics.alter(scope, "orders", partitions=4)
        with pytest.raises(Unavailable):
            await engine.writes.decide(scope, "orders", wish)
        assert await everything(engine, scope, 4) == [[]] * 4
        assert (await engine.writes.decide(scope, "orders", wish)) == Written(count=count, won=True)
        check_moved(await everything(engine, scope, 4), "a")


@pytest.mark.parametrize("growth", [GrowthRule.KEEP, GrowthRule.MOVE])
async def test_messages_without_a_key_stay(growth: GrowthRule) -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a", "b"), piece(1, "c", number=1)])
        await engine.topics.alter(scope, "orders", partitions=3)
        await engine.writes.decide(scope, "orders", replace(deciding(topic, 3), growth=growth))
        assert await everything(engine, scope, 3) == [["a", "b"], ["c"], []]


async def test_messages_whose_partition_was_named_stay_although_they_have_keys() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        count = await stage_keyed(engine, scope, topic)
        await engine.topics.alter(scope, "orders", partitions=3)
        await engine.writes.decide(scope, "orders", replace(deciding(topic, count), growth=GrowthRule.KEEP))
        found = await everything(engine, scope, 3)
        assert (len(found[0]) + len(found[1]), found[2]) == (count, [])
