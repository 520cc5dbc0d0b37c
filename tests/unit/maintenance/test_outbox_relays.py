"""The relay of an outbox keeps its election during a long backlog, and trims its records completely."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from lakelog.engine import Engine
from lakelog.maintenance import OutboxRelays, outbox_relays
from lakelog.storage.outbox import TRIM_RECORDS, OutboxPage, OutboxSettings, Snapshot
from lakelog.storage.store import DEFAULT_CELL
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import one_engine

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class EmptyOutbox:
    """An `OutboxSource` without messages. A read waits until `goes_on` is set."""

    address = "app"

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.reads = self.cancelled = 0

    async def open(self) -> OutboxSettings | None:
        return OutboxSettings(outbox_id=1, project="default", environment="default")

    async def read(self, seen: Snapshot, after: tuple[int, int] = (0, 0)) -> OutboxPage:
        self.reads += 1
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return OutboxPage(rows=[], snapshot=Snapshot(10), is_last=True, started_at=NOW)

    async def rotate(self) -> bool:
        return False

    async def empty(self, moved: Snapshot) -> int:
        return 0

    async def oldest(self) -> datetime | None:
        return None

    async def close(self) -> None: ...


class Elections:
    """Answers the elections of an engine, and counts them."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.is_won = True
        monkeypatch.setattr(engine.cells[DEFAULT_CELL].elections, "elect", self._elect)
        monkeypatch.setattr(outbox_relays, "_ELECT_SECONDS", 0.001)

    async def _elect(self, *_: object) -> bool:
        self.asked += 1
        return self.is_won


async def test_the_election_is_renewed_while_a_backlog_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise another process would take over, and read the outbox from its beginning."""
    async with one_engine() as (engine, _):
        elections, source = Elections(engine, monkeypatch), EmptyOutbox()
        relays = OutboxRelays(engine, [source])
        relays.start()
        await eventually_async(lambda: elections.asked >= 5, every=0.001)
        assert (source.reads, source.cancelled) == (1, 0)
        source.goes_on.set()
        await eventually_async(lambda: source.reads >= 3, every=0.001)
        await relays.stop()


async def test_a_relay_stops_when_another_process_was_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_engine() as (engine, _):
        elections, source = Elections(engine, monkeypatch), EmptyOutbox()
        relays = OutboxRelays(engine, [source])
        relays.start()
        await eventually_async(lambda: source.reads == 1, every=0.001)
        elections.is_won = False
        await eventually_async(lambda: source.cancelled == 1, every=0.001)
        await relays.stop()


async def test_old_records_are_trimmed_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that writes more records than one call deletes would fill the database."""
    left = 3 * TRIM_RECORDS + 5

    async def trim(*_: object) -> int:
        nonlocal left
        trimmed = min(left, TRIM_RECORDS)
        left -= trimmed
        return trimmed

    async with one_engine() as (engine, _):
        Elections(engine, monkeypatch)
        monkeypatch.setattr(engine.cells[DEFAULT_CELL].relays, "relayed_trim", trim)
        source = EmptyOutbox()
        source.goes_on.set()
        relays = OutboxRelays(engine, [source])
        relays.start()
        await eventually_async(lambda: left == 0, every=0.001)
        await relays.stop()
