"""The batches that are kept in memory, and those that are dropped when there are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace

import pytest

from lakelog.engine.leasing import batch_cache as module
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.log.extents import Extents
from lakelog.storage.memory import MemoryStore
from lakelog.storage.store import Append, Appended
from tests.kit.waiting import eventually_async
from tests.unit.engine.log.test_extents import PID, TOPIC
from tests.unit.engine.support import packed


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(module, "READ_MESSAGES", 2)
    return MemoryStore()


async def filled(store: MemoryStore, batch_cache: BatchCache, *, before: int, behind: int) -> None:
    """Unread messages, each a batch, followed by those that a group at the end was notified of."""
    await store.heads_create([PID], 0)
    await append(store, before)
    await batch_cache.fill(TOPIC, {0: before})
    for message, answer in await append(store, behind):
        batch_cache.appended(message, answer)


async def append(store: MemoryStore, count: int) -> Sequence[tuple[Append, Appended]]:
    done = []
    for number in range(count):
        message = Append(pid=PID, epoch=0, payloads=[packed(f"message {number}")])
        (answer,) = await store.append([message])
        assert isinstance(answer, Appended)
        done.append((message, answer))
    return done


def keep(monkeypatch: pytest.MonkeyPatch, batch_cache: BatchCache, batches: int) -> None:
    size = max(each.size for each in batch_cache.row(PID).batches)
    monkeypatch.setattr(module, "KEEP_BYTES", batches * size)


async def test_L2_a_group_far_behind_gets_what_was_read_for_it_though_the_end_of_the_log_fills_the_shelf(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=20, behind=6)
    keep(monkeypatch, batch_cache, 6)
    for offset in range(20):
        await batch_cache.fill(TOPIC, {0: offset})
        found = batch_cache.candidates(batch_cache.row(PID), offset, "late", None, 1)
        assert found.start == offset and found.keys, f"nothing at {offset}"


async def test_what_was_not_used_for_longest_goes_first(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=4, behind=6)
    keep(monkeypatch, batch_cache, 6)
    batch_cache.candidates(batch_cache.row(PID), 4, "early", None, 1)
    await batch_cache.fill(TOPIC, {0: 0})
    assert [each.hot.base for each in batch_cache.row(PID).batches] == [0, 1, 4, 7, 8, 9]
    assert batch_cache._size == sum(each.size for each in batch_cache.row(PID).batches)


async def test_L2_all_that_was_read_together_is_there_to_be_decided_about(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_BYTES", 1)
    topic = replace(TOPIC, cells=(0, 0, 0))
    batch_cache = BatchCache(Extents({0: store}))
    await store.heads_create([topic.pid(partition) for partition in range(3)], 0)
    await store.append([Append(pid=topic.pid(partition), epoch=0, payloads=[packed("v")]) for partition in range(3)])
    await batch_cache.fill(topic, dict.fromkeys(range(3), 0))
    assert [batch_cache.row(topic.pid(partition)).at(0) for partition in range(3)] == [0, 0, 0]


async def test_messages_of_one_batch_that_come_back_one_by_one_are_read_once(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await store.heads_create([PID], 0)
    await store.append([Append(pid=PID, epoch=0, payloads=[packed("a", "b", "c")])])
    assert [piece.offsets for piece in await batch_cache.pieces(TOPIC, 0, [1])] == [[1]]
    monkeypatch.delattr(MemoryStore, "read")
    assert [piece.offsets for piece in await batch_cache.pieces(TOPIC, 0, [0, 2])] == [[0, 2]]


class Held:
    """Holds the answers of a store's reads and looks back until they are let through, in any order."""

    def __init__(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gates: list[asyncio.Event] = []
        for name in ("read_many", "heads_read"):
            monkeypatch.setattr(store, name, self._held(getattr(store, name)))

    def _held(self, call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def held(*arguments: object, **options: object) -> object:
            answer = await call(*arguments, **options)
            gate = asyncio.Event()
            self.gates.append(gate)
            await gate.wait()
            return answer

        return held

    async def begin(self, work: Coroutine[object, object, object]) -> asyncio.Task[object]:
        """Runs the work until the store has answered it."""
        before = len(self.gates)
        task = asyncio.create_task(work)
        await eventually_async(lambda: len(self.gates) > before)
        return task


async def at_the_end(store: MemoryStore, batch_cache: BatchCache) -> None:
    """One message that is known, and one behind it that was announced."""
    await filled(store, batch_cache, before=1, behind=0)
    await append(store, 1)
    batch_cache.grew(PID)


async def test_L2_growth_is_known_to_other_groups_while_one_group_reads_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would wait for the next look: nothing wakes them when that read ends."""
    batch_cache = BatchCache(Extents({0: store}))
    await at_the_end(store, batch_cache)
    held = Held(store, monkeypatch)
    group_topic = await held.begin(batch_cache.fill(TOPIC, {0: 1}))
    assert not batch_cache.is_ready(PID, 1, is_checked=True) and batch_cache.backlog(PID, 1) == 1
    held.gates[0].set()
    await group_topic
    assert batch_cache.is_ready(PID, 1, is_checked=True) and batch_cache.is_ready(PID, 2, is_checked=True)


@pytest.mark.parametrize("old", ["read", "look"])
async def test_L2_an_older_answer_does_not_hide_what_a_newer_one_showed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=1, behind=0)
    batch_cache.grew(PID)
    held = Held(store, monkeypatch)
    first = await held.begin(batch_cache.fill(TOPIC, {0: 1}) if old == "read" else batch_cache.look(TOPIC, [0]))
    await append(store, 2)
    batch_cache.grew(PID)
    second = await held.begin(batch_cache.fill(TOPIC, {0: 2}))
    held.gates[1].set()
    await second
    held.gates[0].set()
    await first
    assert batch_cache.row(PID).high_watermark == 3 and not batch_cache.is_ready(PID, 1, is_checked=True)


async def test_L2_an_append_of_this_process_is_not_forgotten_when_an_older_read_ends(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=1, behind=0)
    held = Held(store, monkeypatch)
    looking = await held.begin(batch_cache.look(TOPIC, [0]))
    for message, answer in await append(store, 2):
        batch_cache.appended(message, answer)
    held.gates[0].set()
    await looking
    assert batch_cache.backlog(PID, 1) == 2 and batch_cache.is_ready(PID, 1, is_checked=True)
    for message, answer in await append(store, 1):
        batch_cache.appended(message, answer)
    assert batch_cache.backlog(PID, 3) == 1 and batch_cache.is_ready(PID, 3, is_checked=True)


async def test_an_append_that_was_read_before_its_answer_came_is_not_read_again(store: MemoryStore) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=1, behind=0)
    done = await append(store, 1)
    batch_cache.grew(PID)
    await batch_cache.fill(TOPIC, {0: 1})
    for message, answer in done:
        batch_cache.appended(message, answer)
    assert batch_cache.is_ready(PID, 2, is_checked=True)


@pytest.mark.parametrize("call", ["read", "look"])
async def test_S3_what_was_asked_for_before_a_drop_is_not_kept(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=2, behind=0)
    held = Held(store, monkeypatch)
    group_topic = await held.begin(batch_cache.fill(TOPIC, {0: 0}) if call == "read" else batch_cache.look(TOPIC, [0]))
    batch_cache.drop(0)
    held.gates[0].set()
    await group_topic
    assert (batch_cache.row(PID).high_watermark, batch_cache.row(PID).batches, batch_cache._size) == (0, [], 0)
    assert not batch_cache.is_ready(PID, 2, is_checked=True)


async def test_a_log_that_ends_earlier_than_before_is_believed(store: MemoryStore) -> None:
    """As after a failover to a standby that was behind."""
    batch_cache = BatchCache(Extents({0: store}))
    await filled(store, batch_cache, before=2, behind=0)
    row = batch_cache.row(PID)
    (head,) = await store.heads_read([PID])
    row.grew()
    row.saw(replace(head, next_offset=1), row.growths)
    assert row.high_watermark == 1
