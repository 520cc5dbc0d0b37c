"""Columns: an Arrow stream cut by partition, one answer a message in the order of the stream."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from contextvars import copy_context

import pyarrow as pa
import pytest

from lakelog.engine import changes
from lakelog.engine.log import threads as threads_module
from lakelog.engine.log.threads import INLINE_BYTES, Threads
from lakelog.errors import InvalidBatch, LakelogError, PartitionNotFound, TopicNotFound, Unavailable
from lakelog.model.message import message_id
from lakelog.model.position import Receipt
from lakelog.model.topic import Scope, Topic
from lakelog.storage.memory import MemoryCatalog
from lakelog.storage.store import Append, Appended, Refused
from lakelog.storage.turns import current_environment
from tests.unit.engine.support import WatchedStore, one_engine, publish, started, text, values


def stream(*batches: dict[str, list[object]]) -> bytes:
    kinds = {"value": pa.binary(), "key": pa.binary(), "partition": pa.int32(), "idempotency_key": pa.string()}
    tables = [pa.table({name: pa.array(column, kinds[name]) for name, column in batch.items()}) for batch in batches]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def numbers(count: int) -> list[object]:
    return [str(n).encode() for n in range(count)]


async def check(engine: object, scope: Scope, answers: Sequence[Receipt | LakelogError], topic: Topic) -> None:
    """Each message n of the stream, whose value is n, is where its receipt says."""
    logs = {p: await values(engine, scope, topic.name, p) for p in range(topic.partitions)}  # type: ignore[arg-type]
    for n, answer in enumerate(answers):
        assert isinstance(answer, Receipt)
        assert answer.id == message_id(topic.incarnation, answer.partition, answer.offset)
        assert logs[answer.partition][answer.offset] == str(n)


@pytest.mark.parametrize("count", [1, 10, 3000])
async def test_each_message_has_its_own_receipt_in_the_order_of_the_stream(count: int) -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 5)
        keys: list[object] = [None if n % 3 == 0 else str(n % 7).encode() for n in range(count)]
        answers = await engine.columns.stream(scope, "orders", stream({"value": numbers(count), "key": keys}))
        assert len(answers) == count
        await check(engine, scope, answers, topic)


async def test_keys_go_where_single_messages_go_and_keep_their_order() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 5)
        keys = [str(n % 9).encode() for n in range(90)]
        single = await publish(engine, scope, "orders", *(text("x", key=key) for key in keys))
        answers = await engine.columns.stream(scope, "orders", stream({"value": numbers(90), "key": list(keys)}))
        assert [a.partition for a in answers] == [a.partition for a in single]  # type: ignore[union-attr]
        for key in set(keys):
            offsets = [a.offset for a, k in zip(answers, keys, strict=True) if k == key]  # type: ignore[union-attr]
            assert offsets == sorted(offsets)


async def test_messages_without_a_key_are_spread_evenly_also_over_calls() -> None:
    async with one_engine() as (engine, scope):
        counts = {name: Counter[int]() for name in ("orders", "payments")}
        for name in counts:
            await engine.topics.create(scope, name, 4)
        for _ in range(6):
            for name, count in counts.items():
                answers = await engine.columns.stream(scope, name, stream({"value": numbers(2)}))
                count.update(a.partition for a in answers)  # type: ignore[union-attr]
        assert [sorted(count.values()) for count in counts.values()] == [[3, 3, 3, 3]] * 2


async def test_named_partitions_win_and_those_that_there_are_not_are_refused() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 3)
        named: list[object] = [0, 2, 3, None, 1, 99]
        answers = await engine.columns.stream(
            scope, "orders", stream({"value": numbers(6), "key": [b"k"] * 6, "partition": named})
        )
        (keyed,) = await publish(engine, scope, "orders", text("x", key=b"k"))
        assert [a.partition if isinstance(a, Receipt) else type(a) for a in answers] == [
            0,
            2,
            PartitionNotFound,
            keyed.partition,
            1,
            PartitionNotFound,
        ]


async def test_several_batches_of_a_stream_are_one_call() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 1)
        parts = [{"value": numbers(30)[at : at + 10]} for at in (0, 10, 20)]
        answers = await engine.columns.stream(scope, "orders", stream(*parts))
        await check(engine, scope, answers, topic)
        assert len(store.appends) == 1


async def test_idempotency_keys_hold_message_by_message() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 3)
        body = stream(
            {"value": [b"a", b"b", b"a"], "idempotency_key": ["a", None, "a"], "partition": [2, 1, None]},
        )
        first, plain, repeat = await engine.columns.stream(scope, "orders", body)
        assert (first.partition, plain.partition) == (2, 1)  # type: ignore[union-attr]
        assert (repeat.id, repeat.duplicate) == (first.id, True)  # type: ignore[union-attr]
        again = await engine.columns.stream(scope, "orders", body)
        assert [a.duplicate for a in again] == [True, False, True]  # type: ignore[union-attr]


async def test_partitions_added_behind_the_cache_are_used_and_nothing_is_written_twice() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 2)
        topic = await there.topics.alter(scope, "orders", partitions=5)
        keys: list[object] = [str(n % 20).encode() for n in range(100)]
        answers = await here.columns.stream(scope, "orders", stream({"value": numbers(100), "key": keys}))
        await check(here, scope, answers, topic)
        single = await publish(there, scope, "orders", *(text("x", key=key) for key in keys))  # type: ignore[arg-type]
        assert [a.partition for a in answers] == [a.partition for a in single]  # type: ignore[union-attr]


async def test_a_topic_recreated_behind_the_cache_takes_the_messages() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 4)
        await there.topics.delete(scope, "orders")
        topic = await there.topics.create(scope, "orders", 2)
        answers = await here.columns.stream(scope, "orders", stream({"value": numbers(10)}))
        await check(here, scope, answers, topic)


class GoneAfterAppend(WatchedStore):
    """The catalog cannot be reached once something was appended."""

    def __init__(self, catalog: AbsentCatalog) -> None:
        super().__init__()
        self._catalog = catalog

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        answers = await super().append(appends)
        self._catalog.away = True
        return answers


class AbsentCatalog(MemoryCatalog):
    away = False

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        if self.away:
            raise Unavailable("the catalog is away")
        return await super().topic_find(scope, name)


async def test_what_went_in_is_said_also_when_the_catalog_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "CACHE_SECONDS", 0.0)
    catalog = AbsentCatalog()
    async with started(catalog, GoneAfterAppend(catalog)) as engine:
        scope = await catalog.scope_create("p", "e")
        await engine.topics.create(scope, "orders")
        answers = await engine.columns.stream(scope, "orders", stream({"value": numbers(2)}))
        assert [type(answer) for answer in answers] == [Receipt, Receipt]


async def test_what_is_no_stream_is_refused_and_a_missing_topic_is_not_found() -> None:
    async with one_engine() as (engine, scope):
        with pytest.raises(TopicNotFound):
            await engine.columns.stream(scope, "orders", stream({"value": numbers(1)}))
        await engine.topics.create(scope, "orders")
        for body in (b"", b"nonsense", stream({"value": []}), stream({"key": [b"k"]})):
            with pytest.raises(InvalidBatch):
                await engine.columns.stream(scope, "orders", body)


async def test_large_work_happens_in_a_thread_and_small_work_here() -> None:
    threads = Threads()
    assert await threads.run(INLINE_BYTES, threading.get_ident) == threading.get_ident()
    assert await threads.run(INLINE_BYTES + 1, threading.get_ident) != threading.get_ident()


async def test_only_a_few_threads_work_at_once() -> None:
    threads = Threads()
    open_gate, at_work, most = threading.Event(), threading.Semaphore(0), 0
    busy = 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal busy, most
        with guard:
            busy += 1
            most = max(most, busy)
        at_work.release()
        open_gate.wait(10)
        with guard:
            busy -= 1

    tasks = [asyncio.create_task(threads.run(INLINE_BYTES + 1, work)) for _ in range(6)]
    for _ in range(threads_module._THREADS):
        assert await asyncio.to_thread(at_work.acquire, timeout=5)
    open_gate.set()
    await asyncio.gather(*tasks)
    assert most == threads_module._THREADS


async def test_environments_take_turns_at_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "_THREADS", 1)
    threads, order, may_run = Threads(), list[str](), threading.Event()

    def work(name: str) -> None:
        may_run.wait(10)
        order.append(name)

    tasks = []
    for environment, name in [*((1, f"hostile {number}") for number in range(4)), (2, "normal")]:
        context = copy_context()
        context.run(current_environment.set, environment)
        run = threads.run(INLINE_BYTES + 1, work, name)
        tasks.append(asyncio.get_running_loop().create_task(run, context=context))
    await asyncio.sleep(0)
    may_run.set()
    await asyncio.gather(*tasks)
    assert order == ["hostile 0", "hostile 1", "normal", "hostile 2", "hostile 3"]
