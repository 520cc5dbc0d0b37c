"""Publish: which partition, which faults, how refusals of a changed topic are settled, what a lost store answers."""

from __future__ import annotations

from collections import Counter

import pytest

from lakelog.engine import Engine, Frame
from lakelog.errors import (
    EpochChanged,
    InvalidRequest,
    LakelogError,
    OutcomeUnknown,
    PartitionNotFound,
    TooLarge,
    TopicNotFound,
    Unavailable,
)
from lakelog.model import limits
from lakelog.model.message import Message, message_id
from lakelog.model.position import Receipt
from lakelog.model.topic import Scope, TopicSettings
from lakelog.storage.memory import MemoryCatalog
from lakelog.storage.store import HeadState
from tests.unit.engine.support import WatchedStore, one_engine, packed, publish, started, text, values

KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""The values that Kafka's own tests expect of its hash."""


async def sent(engine: Engine, scope: Scope, *messages: Message, **options: object) -> list[Receipt | LakelogError]:
    return await engine.publisher.messages(scope, "orders", messages, **options)  # type: ignore[arg-type]


def places(answers: list[Receipt | LakelogError]) -> list[tuple[int, int] | type[LakelogError]]:
    return [(a.partition, a.offset) if isinstance(a, Receipt) else type(a) for a in answers]


@pytest.mark.parametrize("partitions", [1, 4, 7])
async def test_a_key_goes_where_kafka_would_put_it(partitions: int) -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        await engine.topics.create(scope, "orders", partitions)
        answers = await sent(engine, scope, *(text("x", key=key) for key in KAFKA))
        expected = [(number & 0x7FFFFFFF) % partitions for number in KAFKA.values()]
        assert [place[0] for place in places(answers)] == expected  # type: ignore[index]


async def test_an_empty_key_is_a_key() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 5)
        answers = await sent(engine, scope, *(text("x", key=b"") for _ in range(6)))
        assert len({place[0] for place in places(answers)}) == 1  # type: ignore[index]


async def test_messages_without_a_key_are_spread_evenly_in_one_call() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 7)
        counts = Counter(receipt.partition for receipt in await publish(engine, scope, "orders", *[text("x")] * 100))
        assert len(counts) == 7
        assert max(counts.values()) - min(counts.values()) <= 1


async def test_messages_without_a_key_are_spread_evenly_over_calls_to_several_topics() -> None:
    async with one_engine() as (engine, scope):
        counts = {name: Counter[int]() for name in ("orders", "payments")}
        for name in counts:
            await engine.topics.create(scope, name, 2)
        for _ in range(10):
            for name, count in counts.items():
                (receipt,) = await publish(engine, scope, name, text("x"))
                count[receipt.partition] += 1
        assert [sorted(count.values()) for count in counts.values()] == [[5, 5], [5, 5]]


async def test_an_explicit_partition_wins_over_the_key() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 4)
        assert places(await sent(engine, scope, *(text("x", key=b"k", partition=n) for n in range(4)))) == [
            (n, 0) for n in range(4)
        ]


@pytest.mark.parametrize("partition", [-1, 4, 65_536, 1 << 40])
async def test_a_partition_that_there_is_not_is_refused_and_the_others_go_in(partition: int) -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 4)
        answers = await sent(
            engine, scope, text("a", partition=1), text("b", partition=partition), text("c", partition=1)
        )
        assert places(answers) == [(1, 0), PartitionNotFound, (1, 1)]
        (frame,) = await engine.publisher.frames(scope, "orders", [Frame(partition=partition, payload=packed("a"))])
        assert isinstance(frame, PartitionNotFound)


async def test_a_receipt_says_where_the_message_is() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await publish(engine, scope, "orders", text("a", partition=1))
        (receipt,) = await publish(engine, scope, "orders", text("b", partition=1))
        assert receipt == Receipt(id=message_id(topic.incarnation, 1, 1), partition=1, offset=1)


FAULTS = {
    "value": text("x" * (limits.MAX_MESSAGE_BYTES + 1)),
    "key": text("x", key=b"k" * (limits.MAX_KEY_BYTES + 1)),
    "headers": text("x", headers={str(n): "" for n in range(limits.MAX_HEADERS + 1)}),
    "header": text("x", headers={"h": "x" * (limits.MAX_HEADER_BYTES + 1)}),
    "header name": text("x", headers={"h" * (limits.MAX_HEADER_BYTES + 1): "x"}),
    "idempotency key": text("x", idempotency_key="k" * (limits.MAX_IDEMPOTENCY_KEY_BYTES + 1)),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_message_over_a_limit_is_refused_and_the_others_go_in(name: str) -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        assert places(await sent(engine, scope, text("a"), FAULTS[name], text("b"))) == [(0, 0), TooLarge, (0, 1)]
        assert await values(engine, scope, "orders") == ["a", "b"]


async def test_messages_at_their_limits_go_in() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        largest = Message(
            value=b"x" * limits.MAX_MESSAGE_BYTES,
            key=b"k" * limits.MAX_KEY_BYTES,
            headers={
                f"{n:>{limits.MAX_HEADER_BYTES}}": "x" * limits.MAX_HEADER_BYTES for n in range(limits.MAX_HEADERS)
            },
            idempotency_key="k" * limits.MAX_IDEMPOTENCY_KEY_BYTES,
        )
        assert places(await sent(engine, scope, largest, Message(value=None))) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    "fields", [{"correlation_id": "\ud800"}, {"headers": {"\ud800": "x"}}, {"idempotency_key": "\ud800"}]
)
async def test_text_that_is_not_unicode_is_refused_and_the_others_go_in(fields: dict[str, object]) -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        assert places(await sent(engine, scope, text("a"), text("b", **fields), text("c"))) == [
            (0, 0),
            InvalidRequest,
            (0, 1),
        ]


async def test_nothing_is_published_for_no_messages_but_the_topic_must_be_there() -> None:
    async with one_engine() as (engine, scope):
        with pytest.raises(TopicNotFound):
            await sent(engine, scope)
        await engine.topics.create(scope, "orders")
        assert await sent(engine, scope) == []


async def test_heads_that_are_missing_are_made() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("p", "e")
        await catalog.topic_create(scope, "orders", TopicSettings(), [0, 0])
        assert places(await sent(engine, scope, text("a", partition=1))) == [(1, 0)]
        (frame,) = await engine.publisher.frames(scope, "orders", [Frame(partition=0, payload=packed("a", "b"))])
        assert (frame.offset, frame.count) == (0, 2)  # type: ignore[union-attr]


async def test_a_topic_recreated_behind_the_cache_takes_the_messages() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders")
        await publish(here, scope, "orders", text("old"))
        await there.topics.delete(scope, "orders")
        new = await there.topics.create(scope, "orders")
        (receipt,) = await publish(here, scope, "orders", text("new"))
        assert receipt.id == message_id(new.incarnation, 0, 0)
        assert await values(there, scope, "orders") == ["new"]


async def test_a_topic_deleted_behind_the_cache_is_not_found() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders")
        await there.topics.delete(scope, "orders")
        with pytest.raises(TopicNotFound):
            await sent(here, scope, text("a"))


async def test_partitions_added_behind_the_cache_are_used_at_once() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 1)
        await there.topics.alter(scope, "orders", partitions=4)
        keyed = [text("x", key=key) for key in KAFKA]
        expected = [(number & 0x7FFFFFFF) % 4 for number in KAFKA.values()]
        assert [place[0] for place in places(await sent(here, scope, *keyed))] == expected  # type: ignore[index]


async def test_an_explicit_partition_added_behind_the_cache_is_found() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there, started(catalog, store) as third:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 1)
        await third.topics.find(scope, "orders")
        await there.topics.alter(scope, "orders", partitions=4)
        assert places(await sent(here, scope, text("x", partition=3))) == [(3, 0)]
        (frame,) = await third.publisher.frames(scope, "orders", [Frame(partition=3, payload=packed("a"))])
        assert (frame.partition, frame.offset) == (3, 1)  # type: ignore[union-attr]


async def test_an_older_epoch_is_refused_and_says_the_new_one() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        await engine.topics.alter(scope, "orders", partitions=4)
        (refused,) = await sent(engine, scope, text("a", partition=0), epoch=0)
        assert isinstance(refused, EpochChanged)
        assert (refused.epoch, refused.partitions) == (1, 4)
        assert places(await sent(engine, scope, text("a", partition=0), epoch=1)) == [(0, 0)]
        frames = [Frame(partition=0, payload=packed("b"), epoch=epoch) for epoch in (0, 1, None)]
        answers = await engine.publisher.frames(scope, "orders", frames)
        assert isinstance(answers[0], EpochChanged)
        assert [answer.offset for answer in answers[1:]] == [1, 2]  # type: ignore[union-attr]


async def test_a_newer_epoch_than_the_cached_one_is_taken() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 1)
        await there.topics.alter(scope, "orders", partitions=2)
        assert places(await sent(here, scope, text("a", partition=1), epoch=1)) == [(1, 0)]


@pytest.mark.parametrize("epoch", [1, 99, 1 << 62])
async def test_an_epoch_that_never_was_is_refused_and_shuts_nobody_out(epoch: int) -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        assert places(await sent(engine, scope, text("a"), epoch=epoch)) == [EpochChanged]
        (frame,) = await engine.publisher.frames(
            scope, "orders", [Frame(partition=0, payload=packed("a"), epoch=epoch)]
        )
        assert isinstance(frame, EpochChanged)
        assert places(await sent(engine, scope, text("b"))) == [(0, 0)]


async def test_an_epoch_of_the_topic_before_its_recreation_is_refused() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 2)
        # Its announcements are lost.
        await there._changes.stop()
        await there.topics.delete(scope, "orders")
        await there.topics.create(scope, "orders", 3)
        assert places(await sent(here, scope, text("a", partition=0), epoch=0)) == [EpochChanged]


async def test_a_topic_that_stays_closed_is_unavailable() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await store.heads_close([topic.pid(0)], HeadState.SEALED)
        assert places(await sent(engine, scope, text("a", partition=0), text("b", partition=1))) == [
            Unavailable,
            (1, 0),
        ]


@pytest.mark.parametrize("error", [Unavailable(), OutcomeUnknown()])
async def test_a_lost_commit_answers_its_messages_and_is_not_repeated(error: LakelogError) -> None:
    stores = WatchedStore(), WatchedStore()
    async with one_engine(*stores) as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        stores[1].failures.append(error)
        answers = await sent(engine, scope, *(text(str(n), partition=n % 2) for n in range(4)))
        assert places(answers) == [(0, 0), type(error), (0, 1), type(error)]
        assert len(stores[1].appends) == 1


class ForgetfulCatalog(MemoryCatalog):
    """Can be told to be away."""

    away = False

    async def topic_find(self, scope: Scope, name: str):  # type: ignore[no-untyped-def]
        if self.away:
            raise Unavailable("the catalog is away")
        return await super().topic_find(scope, name)


async def test_what_went_in_is_said_also_when_the_rest_cannot_be_settled() -> None:
    catalog, store = ForgetfulCatalog(), WatchedStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("p", "e")
        topic = await engine.topics.create(scope, "orders", 2)
        await store.heads_close([topic.pid(1)], HeadState.SEALED)
        catalog.away = True
        assert places(await sent(engine, scope, text("a", partition=0), text("b", partition=1))) == [
            (0, 0),
            Unavailable,
        ]


async def test_a_failed_reservation_behind_a_change_keeps_what_went_in() -> None:
    stores = WatchedStore(), WatchedStore()
    async with one_engine(*stores) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        await stores[1].heads_close([topic.pid(1)], HeadState.SEALED)
        # The first round reserves in both cells; only the sealed partition's message needs a second one.
        keyed = [text(str(n), partition=n, idempotency_key=f"k{n}") for n in range(2)]
        for store in stores:
            original, calls = store.reserve, iter(range(100))

            async def reserve(wishes, *, durable, original=original, calls=calls):  # type: ignore[no-untyped-def]
                if next(calls):
                    raise Unavailable("gone")
                return await original(wishes, durable=durable)

            store.reserve = reserve  # type: ignore[method-assign]
        answers = await sent(engine, scope, *keyed)
        assert places(answers) == [(0, 0), Unavailable]
