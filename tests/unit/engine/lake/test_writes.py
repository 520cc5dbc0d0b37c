"""Writes: staged by any process, decided once, promoted cell by cell, finished by the next process (S20)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from lakelog import failpoints
from lakelog.engine import Engine
from lakelog.errors import Conflict, EpochChanged, InvalidRequest, LakelogError, PartitionNotFound, Unavailable
from lakelog.maintenance.write_finisher import WriteFinisher
from lakelog.model.fetch import FetchLimits
from lakelog.model.position import AtOffset
from lakelog.model.topic import Scope, Topic
from lakelog.model.write import DecideOptions, StageOptions, StagePiece, Written
from lakelog.storage.memory import MemoryCatalog
from lakelog.storage.store import HeadState
from tests.unit.engine.support import Clock, WatchedStore, one_engine, packed, publish, started, text, values


def piece(partition: int, *said: str, number: int = 0) -> StagePiece:
    payload = packed(*said)
    return StagePiece(partition=partition, number=number, count=payload.count, payload=payload.data)


def staging(topic: Topic, attempt: str = "a", write: str = "w") -> StageOptions:
    return StageOptions(write_id=write, attempt=attempt, incarnation=topic.incarnation, epoch=topic.epoch)


def deciding(topic: Topic, count: int, *attempts: str, write: str = "w") -> DecideOptions:
    return DecideOptions(
        write_id=write, attempts=attempts or ("a",), count=count, incarnation=topic.incarnation, epoch=topic.epoch
    )


async def everything(engine: Engine, scope: Scope, partitions: int = 2) -> list[list[str]]:
    return [await values(engine, scope, "orders", partition) for partition in range(partitions)]


@pytest.fixture(autouse=True)
def disarmed() -> object:
    yield
    failpoints.arm("")


async def test_what_is_staged_is_seen_when_it_is_decided_and_not_before() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a", "b"), piece(1, "c", number=1)])
        assert await everything(engine, scope) == [[], []]
        written = await engine.writes.decide(scope, "orders", deciding(topic, 3))
        assert written == Written(count=3, won=True)
        assert await everything(engine, scope) == [["a", "b"], ["c"]]
        await publish(engine, scope, "orders", text("d", partition=0))
        assert (await everything(engine, scope))[0] == ["a", "b", "d"]


async def test_s20_a_second_decision_adds_nothing_and_says_who_won() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        for attempt in "ab":
            await engine.writes.stage(scope, "orders", staging(topic, attempt), [piece(0, attempt), piece(1, attempt)])
        mine, theirs = deciding(topic, 2, "a"), deciding(topic, 2, "b")
        first = await asyncio.gather(*(engine.writes.decide(scope, "orders", wish) for wish in (mine, theirs)))
        again = [await engine.writes.decide(scope, "orders", wish) for wish in (mine, theirs)]
        assert first == again == [Written(count=2, won=True), Written(count=2, won=False)]
        assert await everything(engine, scope) == [["a"], ["a"]]


async def test_a_waiting_reader_is_woken_by_a_promotion() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders")
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        group_topic = asyncio.create_task(
            engine.fetcher.fetch(scope, "orders", 0, AtOffset(0), FetchLimits(wait_seconds=20))
        )
        await asyncio.sleep(0)
        await engine.writes.decide(scope, "orders", deciding(topic, 1))
        assert (await asyncio.wait_for(group_topic, 5)).until == 1


@pytest.mark.parametrize("wish", [{"count": 2}, {"attempts": ("nobody",)}, {"attempts": (), "count": 1}])
async def test_nothing_is_decided_when_something_is_missing(wish: dict[str, object]) -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders")
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        with pytest.raises(Conflict, match="stage them again"):
            await engine.writes.decide(scope, "orders", replace(deciding(topic, 1), **wish))
        assert (await engine.writes.decide(scope, "orders", deciding(topic, 1))).won


async def test_partitions_that_were_added_refuse_the_write_before_it_is_decided() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 1)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        await engine.topics.alter(scope, "orders", partitions=2)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "b", number=1)])
        with pytest.raises(EpochChanged):
            await engine.writes.decide(scope, "orders", deciding(topic, 2))
        assert await everything(engine, scope) == [[], []]


async def test_a_write_that_was_decided_before_partitions_were_added_is_answered_as_it_stands() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 1)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        await engine.writes.decide(scope, "orders", deciding(topic, 1))
        await engine.topics.alter(scope, "orders", partitions=2)
        assert await engine.writes.decide(scope, "orders", deciding(topic, 1)) == Written(count=1, won=True)


async def test_a_topic_made_anew_takes_nothing_of_the_old_one() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 1)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        await engine.topics.delete(scope, "orders")
        await engine.topics.create(scope, "orders", 1)
        with pytest.raises(Conflict, match="created again"):
            await engine.writes.decide(scope, "orders", deciding(topic, 1))
        with pytest.raises(Conflict, match="created again"):
            await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])


@pytest.mark.parametrize(
    ("wish", "pieces", "error"),
    [
        ({"write_id": ""}, [], InvalidRequest),
        ({"write_id": "a\0b"}, [], InvalidRequest),
        ({"write_id": "x" * 513}, [], InvalidRequest),
        ({"attempt": "ä" * 61}, [], InvalidRequest),
        ({}, [piece(1, "a")], PartitionNotFound),
        ({}, [piece(0, "a", number=1 << 31)], LakelogError),
    ],
)
async def test_what_cannot_be_staged(wish: dict[str, str], pieces: list[StagePiece], error: type[Exception]) -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 1)
        with pytest.raises(error):
            await engine.writes.stage(scope, "orders", replace(staging(topic), **wish), pieces)


@pytest.mark.parametrize("point", ["writes.before_decision", "writes.after_decision", "writes.between_cells"])
@pytest.mark.parametrize("finisher", ["the same again", "a re-run with other messages", "the agent"])
async def test_s20_whoever_comes_next_finishes_what_was_broken_off(point: str, finisher: str) -> None:
    catalog, stores = MemoryCatalog(), (WatchedStore(clock := Clock()), WatchedStore(clock))
    async with started(catalog, *stores) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", 2)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a"), piece(1, "b")])
        failpoints.arm(f"{point}=error")
        with pytest.raises(Unavailable):
            await engine.writes.decide(scope, "orders", deciding(topic, 2))
        failpoints.arm("")
    async with started(catalog, *stores) as engine:
        if finisher == "the agent":
            clock.pass_by(minutes=1)
            await WriteFinisher(engine).work()
            decided = point != "writes.before_decision"
            assert await everything(engine, scope) == ([["a"], ["b"]] if decided else [[], []])
        attempt = "other" if finisher == "a re-run with other messages" else "a"
        if attempt == "other":
            await engine.writes.stage(scope, "orders", staging(topic, attempt), [piece(0, "x"), piece(1, "y")])
        won = attempt == "a" or point == "writes.before_decision"
        assert await engine.writes.decide(scope, "orders", deciding(topic, 2, attempt)) == Written(count=2, won=won)
        expected = [["x"], ["y"]] if won and attempt == "other" else [["a"], ["b"]]
        assert await everything(engine, scope) == expected


async def test_what_nobody_decides_about_is_given_up_after_a_day() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock), WatchedStore(clock)) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a"), piece(1, "b")])
        agent = WriteFinisher(engine)
        clock.pass_by(hours=23)
        await agent.work()
        assert await engine.cells[0].staging.staged_writes(timedelta(0))
        clock.pass_by(hours=1)
        await agent.work()
        assert [await store.staging.staged_writes(timedelta(0)) for store in engine.cells.values()] == [[], []]
        with pytest.raises(Conflict, match="was abandoned"):
            await engine.writes.decide(scope, "orders", deciding(topic, 2))
        assert await everything(engine, scope) == [[], []]


async def test_what_lands_after_the_end_is_removed() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 1)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        await engine.writes.decide(scope, "orders", deciding(topic, 1))
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a")])
        clock.pass_by(minutes=1)
        await WriteFinisher(engine).work()
        assert await engine.cells[0].staging.staged_writes(timedelta(0)) == []
        assert await everything(engine, scope, 1) == [["a"]]


async def test_a_decided_write_waits_for_a_sealed_partition() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await engine.writes.stage(scope, "orders", staging(topic), [piece(0, "a"), piece(1, "b")])
        await engine.cells[0].heads_close([topic.pid(1)], HeadState.SEALED)
        with pytest.raises(Unavailable, match="Partition 1"):
            await engine.writes.decide(scope, "orders", deciding(topic, 2))
        assert await everything(engine, scope) == [["a"], []]
