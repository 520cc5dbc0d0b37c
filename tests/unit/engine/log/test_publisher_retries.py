"""Publishing twice: idempotency keys, numbered batches, and what an older epoch means for a retry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

import pytest

from lakelog.engine import Engine, Frame, Numbered
from lakelog.errors import (
    EpochChanged,
    IdempotencyConflict,
    InvalidRequest,
    LakelogError,
    SequenceRefused,
    TooLarge,
)
from lakelog.model import limits
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog
from tests.unit.engine.support import WatchedStore, one_engine, packed, publish, started, text, values

PRODUCER = b"p" * 16


class Place(NamedTuple):
    partition: int
    offset: int
    count: int
    duplicate: bool = False


async def sent(engine: Engine, scope: Scope, *messages: Message, **options: object) -> list[Receipt | LakelogError]:
    return await engine.publisher.messages(scope, "orders", messages, **options)  # type: ignore[arg-type]


def number(sequence: int, producer: bytes = PRODUCER) -> Numbered:
    return Numbered(producer=producer, sequence=sequence)


async def framed(engine: Engine, scope: Scope, *frames: Frame) -> list[Place | LakelogError]:
    answers = await engine.publisher.frames(scope, "orders", frames)
    return [
        answer
        if isinstance(answer, LakelogError)
        else Place(answer.partition, answer.offset, answer.count, answer.duplicate)
        for answer in answers
    ]


def frame(sequence: int, *given: str, partition: int = 0, epoch: int | None = None) -> Frame:
    return Frame(partition=partition, payload=packed(*given), numbered=number(sequence), epoch=epoch)


async def test_a_key_used_twice_in_one_call_is_one_message() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 3)
        a, b = text("a", idempotency_key="a"), text("b", idempotency_key="b")
        receipts = await publish(engine, scope, "orders", a, b, a, text("plain"), a, b)
        assert [receipt.duplicate for receipt in receipts] == [False, False, True, False, True, True]
        assert receipts[0].id == receipts[2].id == receipts[4].id
        assert receipts[1].id == receipts[5].id
        assert sorted([v for n in range(3) for v in await values(engine, scope, "orders", n)]) == ["a", "b", "plain"]


async def test_a_key_used_again_has_the_place_of_its_first_use() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        await engine.topics.create(scope, "orders", 4)
        given = [text(str(n), idempotency_key=f"k{n}") for n in range(40)]
        first = await publish(engine, scope, "orders", *given)
        again = await publish(engine, scope, "orders", *reversed(given))
        assert [receipt.id for receipt in first] == [receipt.id for receipt in reversed(again)]
        assert {receipt.duplicate for receipt in again} == {True}
        assert {receipt.partition for receipt in first} == {0, 1, 2, 3}


async def test_a_call_may_mix_new_and_used_keys() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", *(text(str(n), idempotency_key=f"k{n}") for n in (1, 3)))
        receipts = await publish(engine, scope, "orders", *(text(str(n), idempotency_key=f"k{n}") for n in range(5)))
        assert [(receipt.offset, receipt.duplicate) for receipt in receipts] == [
            (2, False),
            (0, True),
            (3, False),
            (1, True),
            (4, False),
        ]
        assert await values(engine, scope, "orders") == ["1", "3", "0", "2", "4"]


@pytest.mark.parametrize(
    "other",
    [text("b"), text("a", key=b"k"), text("a", headers={"h": "1"}), text("a", content_type="x"), Message(value=None)],
    ids=["value", "key", "headers", "content type", "no value"],
)
async def test_a_key_with_another_body_is_refused_and_the_others_go_in(other: Message) -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("a", idempotency_key="k"))
        refused, receipt = await sent(engine, scope, replace(other, idempotency_key="k"), text("c"))
        assert isinstance(refused, IdempotencyConflict)
        assert refused.idempotency_key == "k"
        assert receipt.offset == 1  # type: ignore[union-attr]


async def test_a_key_with_another_partition_stays_where_its_first_use_was() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 4)
        (first,) = await publish(engine, scope, "orders", text("a", idempotency_key="k", partition=2))
        (again,) = await publish(engine, scope, "orders", text("a", idempotency_key="k", partition=3))
        assert (again.id, again.duplicate) == (first.id, True)


async def test_keys_belong_to_their_topic() -> None:
    async with one_engine() as (engine, scope):
        for name in ("orders", "payments"):
            await engine.topics.create(scope, name)
            (receipt,) = await publish(engine, scope, name, text(name, idempotency_key="k"))
            assert not receipt.duplicate


async def test_keys_of_a_recreated_topic_are_new() -> None:
    async with one_engine() as (engine, scope):
        for body in ("old", "new"):
            await engine.topics.create(scope, "orders")
            (receipt,) = await publish(engine, scope, "orders", text(body, idempotency_key="k"))
            assert (receipt.offset, receipt.duplicate) == (0, False)
            await engine.topics.delete(scope, "orders")


async def test_concurrent_uses_of_a_key_are_one_message() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 3)
        calls = [publish(e, scope, "orders", text("a", idempotency_key="k")) for e in (here, there) * 10]
        receipts = [receipt for (receipt,) in await asyncio.gather(*calls)]
        assert len({receipt.id for receipt in receipts}) == 1
        assert [receipt.duplicate for receipt in receipts].count(False) == 1


async def test_a_key_is_found_in_a_partition_that_was_added_behind_the_cache() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 1)
        await there.topics.alter(scope, "orders", partitions=4)
        (first,) = await publish(there, scope, "orders", text("a", idempotency_key="k", partition=3))
        (again,) = await publish(here, scope, "orders", text("a", idempotency_key="k"))
        assert (again.id, again.duplicate) == (first.id, True)


async def test_a_key_is_found_whatever_epoch_its_retry_names() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        (first,) = await sent(engine, scope, text("a", idempotency_key="k"), epoch=0)
        await engine.topics.alter(scope, "orders", partitions=4)
        (again,) = await sent(engine, scope, text("a", idempotency_key="k"), epoch=0)
        assert (again.id, again.duplicate) == (first.id, True)  # type: ignore[union-attr]
        assert isinstance((await sent(engine, scope, text("b", idempotency_key="l"), epoch=0))[0], EpochChanged)


async def test_a_numbered_batch_repeated_is_a_duplicate_message_by_message() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 4)
        given = [text(str(n), partition=2) for n in range(3)]
        first = await sent(engine, scope, *given, numbered=number(0))
        await sent(engine, scope, text("between", partition=2))
        again = await sent(engine, scope, *given, numbered=number(0))
        assert [(r.offset, r.duplicate) for r in first] == [(n, False) for n in range(3)]  # type: ignore[union-attr]
        assert [(r.offset, r.duplicate) for r in again] == [(n, True) for n in range(3)]  # type: ignore[union-attr]


async def test_a_numbered_batch_names_its_partition() -> None:
    """A server that chose it for the caller might choose another one for the retry, and write it again there."""
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 5)
        with pytest.raises(InvalidRequest, match="partition"):
            await sent(engine, scope, text("a", key=b"k"), numbered=number(0))
        assert await values(engine, scope, "orders") == []


async def test_gaps_and_unknown_producers_are_refused() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        assert isinstance((await framed(engine, scope, frame(0, "a")))[0], Place)
        refused = await framed(
            engine,
            scope,
            frame(2, "c"),
            Frame(partition=0, payload=packed("x"), numbered=number(1, b"q" * 16)),
        )
        assert [type(answer) for answer in refused] == [SequenceRefused, SequenceRefused]
        assert [answer.reason for answer in refused] == ["gap", "unknown_producer"]  # type: ignore[union-attr]
        (by_message,) = await sent(engine, scope, text("c", partition=0), numbered=number(2))
        assert (type(by_message), by_message.reason) == (SequenceRefused, "gap")  # type: ignore[union-attr]
        assert (await framed(engine, scope, frame(1, "b")))[0] == Place(partition=0, offset=1, count=1)


async def test_only_the_last_five_batches_are_remembered() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        for sequence in range(7):
            await framed(engine, scope, frame(sequence, "a", "b"))
        answers = await framed(engine, scope, *(frame(sequence, "a", "b") for sequence in range(7)))
        assert [type(answer) for answer in answers[:2]] == [SequenceRefused] * 2
        assert answers[2:] == [
            Place(partition=0, offset=2 * sequence, count=2, duplicate=True) for sequence in range(2, 7)
        ]


async def test_frames_of_several_partitions_and_numbers_go_in_with_one_call() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        await engine.topics.create(scope, "orders", 3)
        given = [frame(s, f"{p}-{s}", partition=p) for s in range(3) for p in range(3)]
        answers = await framed(engine, scope, *given)
        assert answers == [Place(partition=p, offset=s, count=1) for s in range(3) for p in range(3)]
        again = await framed(engine, scope, *given)
        assert again == [Place(partition=p, offset=s, count=1, duplicate=True) for s in range(3) for p in range(3)]


async def test_a_number_is_for_one_partition() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        with pytest.raises(InvalidRequest, match="several"):
            await sent(engine, scope, text("a", partition=0), text("b", partition=1), numbered=number(0))
        assert await values(engine, scope, "orders", 0) == []


async def test_a_number_and_idempotency_keys_exclude_each_other() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        with pytest.raises(InvalidRequest, match="not both"):
            await sent(
                engine, scope, text("a", partition=0), text("b", partition=0, idempotency_key="k"), numbered=number(0)
            )


async def test_a_numbered_batch_with_a_fault_is_refused_as_a_whole() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        with pytest.raises(TooLarge):
            large = text("b", partition=0, key=b"k" * (limits.MAX_KEY_BYTES + 1))
            await sent(engine, scope, text("a", partition=0), large, numbered=number(0))
        assert await values(engine, scope, "orders") == []
        assert isinstance((await sent(engine, scope, text("a", partition=0), numbered=number(0)))[0], Receipt)


async def test_a_retry_with_an_older_epoch_is_a_duplicate_and_a_fresh_batch_is_refused() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        assert await framed(engine, scope, frame(0, "a", "b", epoch=0)) == [Place(partition=0, offset=0, count=2)]
        await engine.topics.alter(scope, "orders", partitions=3)
        duplicate, changed = await framed(engine, scope, frame(0, "a", "b", epoch=0), frame(1, "c", epoch=0))
        assert duplicate == Place(partition=0, offset=0, count=2, duplicate=True)
        assert isinstance(changed, EpochChanged)
        (again,) = await sent(engine, scope, text("a", partition=0), numbered=number(0), epoch=0)
        assert (again.offset, again.duplicate) == (0, True)  # type: ignore[union-attr]
        assert await framed(engine, scope, frame(1, "c", epoch=1)) == [Place(partition=0, offset=2, count=1)]


async def test_a_producer_of_the_topic_before_its_recreation_is_unknown() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        await framed(engine, scope, frame(0, "a"))
        await engine.topics.delete(scope, "orders")
        await engine.topics.create(scope, "orders")
        (refused,) = await framed(engine, scope, frame(1, "b"))
        assert (type(refused), refused.reason) == (SequenceRefused, "unknown_producer")  # type: ignore[union-attr]
