"""Numbered batches: a retry at any server is recognised, a gap is refused, nothing is written twice."""

from __future__ import annotations

import asyncio
import os

from lakelog.engine import Frame, FrameReceipt, Numbered
from lakelog.errors import EpochChanged, LakelogError, SequenceRefused
from tests.acceptance.engines import Log, Server
from tests.unit.engine.support import packed, text


class Producer:
    """Numbers its batches per partition, as the SDK does."""

    def __init__(self) -> None:
        self.id = os.urandom(16)
        self._next: dict[int, int] = {}

    def frame(self, *values: str, partition: int = 0, sequence: int | None = None, epoch: int | None = None) -> Frame:
        if sequence is None:
            sequence = self._next.get(partition, 0)
            self._next[partition] = sequence + 1
        numbered = Numbered(producer=self.id, sequence=sequence)
        return Frame(partition=partition, payload=packed(*values), numbered=numbered, epoch=epoch)


def shown(answer: FrameReceipt | LakelogError) -> tuple[int, bool] | str:
    if isinstance(answer, SequenceRefused):
        return str(answer.reason)
    return (answer.offset, answer.duplicate) if isinstance(answer, FrameReceipt) else type(answer).__name__


async def sent(server: Server, *frames: Frame) -> list[tuple[int, bool] | str]:
    return [shown(answer) for answer in await server.frames(*frames)]


async def test_batches_continue_and_a_retry_is_a_duplicate(log: Log) -> None:
    async with log.server() as server:
        await server.create(2)
        producer = Producer()
        frames = [producer.frame(f"{n}a", f"{n}b", partition=1) for n in range(4)]
        assert await sent(server, *frames) == [(0, False), (2, False), (4, False), (6, False)]
        assert await sent(server, *frames) == [(0, True), (2, True), (4, True), (6, True)]
        assert await server.values(1) == [f"{n}{c}" for n in range(4) for c in "ab"]


async def test_a_retry_at_the_other_server_is_a_duplicate(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(3)
        producer = Producer()
        for n in range(12):
            frame = producer.frame(str(n), partition=n % 3)
            assert await sent(here, frame) == [(n // 3, False)]
            assert await sent(there, frame) == [(n // 3, True)]
        assert [head.next_offset for head in await there.heads()] == [4, 4, 4]


async def test_the_same_batch_at_both_servers_at_once_is_written_once(log: Log) -> None:
    async with log.servers(2) as servers:
        await servers[0].create(2)
        producers = [Producer() for _ in range(20)]
        for n in range(5):
            frames = [producer.frame(f"{at}-{n}", partition=at % 2) for at, producer in enumerate(producers)]
            calls = [sent(server, frame) for frame in frames for server in servers]
            answers = [answer for (answer,) in await asyncio.gather(*calls)]
            for one, other in zip(answers[::2], answers[1::2], strict=True):
                assert one[0] == other[0]
                assert {one[1], other[1]} == {True, False}
        values = await servers[0].values(0) + await servers[0].values(1)
        assert sorted(values) == sorted(f"{at}-{n}" for at in range(20) for n in range(5))


async def test_gaps_and_unknown_producers_are_refused_and_nothing_of_them_is_written(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        known, unknown = Producer(), Producer()
        assert await sent(server, known.frame("0")) == [(0, False)]
        assert await sent(server, known.frame("2", sequence=2), unknown.frame("x", sequence=1)) == [
            "gap",
            "unknown_producer",
        ]
        assert await sent(server, known.frame("1")) == [(1, False)]
        assert await server.values() == ["0", "1"]


async def test_a_batch_older_than_the_remembered_ones_is_refused(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        producer = Producer()
        frames = [producer.frame(str(n)) for n in range(7)]
        await sent(server, *frames)
        assert await sent(server, *frames) == ["gap", "gap", *((n, True) for n in range(2, 7))]


async def test_producers_plain_messages_and_keys_share_a_partition(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        producers = [Producer() for _ in range(5)]

        async def numbered(at: int) -> None:
            for n in range(6):
                frame = producers[at].frame(f"n{at}-{n}")
                (first,) = await sent(server, frame)
                assert await sent(server, frame) == [(first[0], True)]

        async def keyed(at: int) -> None:
            for n in range(6):
                given = text(f"k{at}-{n}", idempotency_key=f"{at}-{n}")
                (first,) = await server.publish(given)
                again, _ = await server.publish(given, text("plain"))
                assert (again.offset, again.duplicate) == (first.offset, True)

        await asyncio.gather(*(numbered(at) for at in range(5)), *(keyed(at) for at in range(5)))
        values = await server.values()
        assert values.count("plain") == 30
        assert sorted(v for v in values if v != "plain") == sorted(
            f"{k}{a}-{n}" for k in "kn" for a in range(5) for n in range(6)
        )


async def test_a_numbered_batch_of_messages_is_found_by_its_retry(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(5)
        number = Numbered(producer=os.urandom(16), sequence=0)
        given = [text("a", partition=3), text("b", partition=3)]
        first = await here.publish(*given, numbered=number)
        again = await there.publish(*given, numbered=number)
        assert [(r.id, r.duplicate) for r in again] == [(r.id, True) for r in first]


async def test_a_retry_after_partitions_were_added_is_a_duplicate_and_a_fresh_batch_is_refused(log: Log) -> None:
    async with log.servers(2) as (here, there):
        topic = await here.create(2)
        producer = Producer()
        frame = producer.frame("a", "b", epoch=topic.epoch)
        assert await sent(here, frame) == [(0, False)]
        altered = await there.engine.topics.alter(there.scope, there.name, partitions=4)
        fresh = producer.frame("c", epoch=topic.epoch)
        for server in (here, there):
            assert await sent(server, frame, fresh) == [(0, True), EpochChanged.__name__]
        assert await sent(here, producer.frame("c", sequence=1, epoch=altered.epoch)) == [(2, False)]
