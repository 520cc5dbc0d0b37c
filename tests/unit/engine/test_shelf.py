"""What is kept of the log in memory, and what goes when there is too much of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakelog.engine import shelf as module
from lakelog.engine.extents import Extents
from lakelog.engine.shelf import Shelf
from lakelog.storage.memory import MemoryStore
from lakelog.storage.store import Append, Appended
from tests.unit.engine.support import packed
from tests.unit.engine.test_extents import PID, TOPIC


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(module, "READ_MESSAGES", 2)
    return MemoryStore()


async def filled(store: MemoryStore, shelf: Shelf, *, before: int, behind: int) -> None:
    """Messages, each a batch, that nobody has read; and behind them those that a group at the end was told of."""
    await store.heads_create([PID], 0)
    await append(store, before)
    await shelf.fill(TOPIC, {0: before})
    for message, answer in await append(store, behind):
        shelf.appended(message, answer)


async def append(store: MemoryStore, count: int) -> Sequence[tuple[Append, Appended]]:
    done = []
    for number in range(count):
        message = Append(pid=PID, epoch=0, payloads=[packed(f"message {number}")])
        (answer,) = await store.append([message])
        assert isinstance(answer, Appended)
        done.append((message, answer))
    return done


def keep(monkeypatch: pytest.MonkeyPatch, shelf: Shelf, batches: int) -> None:
    size = max(each.size for each in shelf.row(PID).batches)
    monkeypatch.setattr(module, "KEEP_BYTES", batches * size)


async def test_L2_a_group_far_behind_gets_what_was_read_for_it_though_the_end_of_the_log_fills_the_shelf(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(Extents({0: store}))
    await filled(store, shelf, before=20, behind=6)
    keep(monkeypatch, shelf, 6)
    for offset in range(20):
        await shelf.fill(TOPIC, {0: offset})
        found = shelf.candidates(shelf.row(PID), offset, "late", None, 1)
        assert found.start == offset and found.keys, f"nothing at {offset}"


async def test_what_was_not_used_for_longest_goes_first(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(Extents({0: store}))
    await filled(store, shelf, before=4, behind=6)
    keep(monkeypatch, shelf, 6)
    shelf.candidates(shelf.row(PID), 4, "early", None, 1)
    await shelf.fill(TOPIC, {0: 0})
    assert [each.hot.base for each in shelf.row(PID).batches] == [0, 1, 4, 7, 8, 9]
    assert shelf._size == sum(each.size for each in shelf.row(PID).batches)


async def test_L2_all_that_was_read_together_is_there_to_be_decided_about(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_BYTES", 1)
    topic = replace(TOPIC, cells=(0, 0, 0))
    shelf = Shelf(Extents({0: store}))
    await store.heads_create([topic.pid(partition) for partition in range(3)], 0)
    await store.append([Append(pid=topic.pid(partition), epoch=0, payloads=[packed("v")]) for partition in range(3)])
    await shelf.fill(topic, dict.fromkeys(range(3), 0))
    assert [shelf.row(topic.pid(partition)).at(0) for partition in range(3)] == [0, 0, 0]


async def test_messages_of_one_batch_that_come_back_one_by_one_are_read_once(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(Extents({0: store}))
    await store.heads_create([PID], 0)
    await store.append([Append(pid=PID, epoch=0, payloads=[packed("a", "b", "c")])])
    assert [piece.offsets for piece in await shelf.pieces(TOPIC, 0, [1])] == [[1]]
    monkeypatch.delattr(MemoryStore, "read")
    assert [piece.offsets for piece in await shelf.pieces(TOPIC, 0, [0, 2])] == [[0, 2]]
