"""Health, readiness, and the refusal to serve where messages are not safe."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any

import pytest

from lakelog.errors import NotDurable, Unavailable
from lakelog.server import check_durability, health
from lakelog.storage.failover import Durability
from lakelog.storage.memory import MemoryStore
from tests.unit.server.harness import world


class _Store(MemoryStore):
    weak: tuple[str, ...] = ()
    waits = True
    answer: str = "at once"
    looks = 0

    def __init__(self) -> None:
        super().__init__()
        self.resumed = asyncio.Event()

    async def durability(self) -> Durability:
        return Durability(weak=self.weak, synchronous_standby=self.waits, timeline=1)

    async def check(self) -> None:
        self.looks += 1
        if self.answer == "never":
            await asyncio.Event().wait()
        if self.answer == "not even if cancelled":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await self.resumed.wait()
        if self.answer == "error":
            raise Unavailable("No connection to db.internal:5432.")
        await super().check()


@pytest.fixture(autouse=True)
def _remember_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REMEMBER_SECONDS", 0.0)


async def test_healthy_and_ready() -> None:
    async with world() as made:
        alive = await made.call("GET", "/healthz", token=None)
        ready = await made.call("GET", "/readyz", token=None)
    assert (alive.status, alive.json["status"], alive.json["durable"]) == (200, "ok", True)
    assert (ready.status, ready.json["status"], ready.json["warnings"]) == (200, "ready", [])
    assert alive.json["version"]


@pytest.mark.parametrize("answer", ["never", "error"])
async def test_not_ready_while_a_cell_is_out_of_reach(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PING_SECONDS", 0.05)
    store = _Store()
    async with world(store=store) as made:
        store.answer = answer
        reply = await made.call("GET", "/readyz")
        alive = await made.call("GET", "/healthz")
        store.answer = "at once"
        again = await made.call("GET", "/readyz")
    assert (reply.status, reply.json["status"]) == (503, "unavailable")
    assert "cell 0" in reply.json["warnings"][0]
    assert b"db.internal" not in reply.body
    assert reply.headers["retry-after"] == "1"
    assert (alive.status, again.status) == (200, 200)


async def test_a_change_of_readiness_is_logged_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    store = _Store()
    async with world(store=store) as made:
        await made.call("GET", "/readyz")
        assert caplog.messages == []
        store.answer = "error"
        for _ in range(5):
            await made.call("GET", "/readyz")
        store.answer = "at once"
        for _ in range(5):
            await made.call("GET", "/readyz")
    unready, ready = caplog.messages
    assert unready == "Not ready: /readyz returns 503. No connection to db.internal:5432."
    assert re.fullmatch(r"Ready again after \d+\.\d s\.", ready)
    assert [vars(each)["event"] for each in caplog.records] == ["server_unready", "server_ready"]


async def test_a_connection_that_takes_long_to_close_does_not_delay_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PING_SECONDS", 0.05)
    store = _Store()
    async with world(store=store) as made:
        store.answer = "not even if cancelled"
        reply = await asyncio.wait_for(made.call("GET", "/readyz"), 5)
        store.resumed.set()
    assert (reply.status, reply.json["warnings"]) == (503, ["No response from cell 0 within 0.05 s."])


async def test_not_ready_while_draining() -> None:
    async with world() as made:
        made.drain.begin()
        reply = await made.call("GET", "/readyz")
        alive = await made.call("GET", "/healthz")
    assert (reply.status, reply.json["status"]) == (503, "draining")
    assert (alive.status, alive.json["status"]) == (200, "draining")


async def test_many_who_ask_cost_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REMEMBER_SECONDS", 60.0)
    store = _Store()
    async with world(store=store) as made:
        replies = await asyncio.gather(*(made.call("GET", "/readyz") for _ in range(20)))
        await made.call("GET", "/readyz")
    assert {reply.status for reply in replies} == {200}
    assert store.looks == 1


async def test_not_durable_is_said_in_every_answer() -> None:
    async with world(weak=["cell 0: fsync=off"]) as made:
        replies: list[Any] = [await made.call("GET", path) for path in ("/healthz", "/readyz")]
        made.drain.begin()
        replies += [await made.call("GET", path) for path in ("/healthz", "/readyz")]
    for reply in replies:
        assert reply.json["durable"] is False
        assert reply.json["warnings"][0].startswith("NOT DURABLE: ")
        assert "fsync=off" in reply.json["warnings"][0]


async def test_a_missing_synchronous_standby_is_said_as_long_as_it_is_missing() -> None:
    store = _Store()
    store.waits = False
    async with world(store=store) as made:
        ready = await made.call("GET", "/readyz")
        alive = await made.call("GET", "/healthz")
        store.waits = True
        again = await made.call("GET", "/readyz")
    for reply in (ready, alive):
        assert (reply.status, reply.json["durable"]) == (200, True)
        assert reply.json["warnings"][0].startswith("Not durable on failover: ")
    assert again.json["warnings"] == []


async def test_a_weak_database_is_refused_unless_allowed() -> None:
    store = _Store()
    async with world(store=store) as made:
        assert await check_durability(made.engine, False) == []
        store.weak = ("fsync=off", "full_page_writes=off")
        with pytest.raises(NotDurable, match=r"fsync=off.*--allow-not-durable"):
            await check_durability(made.engine, False)
        assert await check_durability(made.engine, True) == ["cell 0: fsync=off", "cell 0: full_page_writes=off"]


async def test_ready_and_degraded_while_one_of_two_cells_is_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    store = _Store()
    async with world() as made:
        made.engine.cells[1] = store
        store.answer = "error"
        reply = await made.call("GET", "/readyz")
        metrics = await made.call("GET", "/metrics")
        store.answer = "at once"
        again = await made.call("GET", "/readyz")
    assert (reply.status, reply.json["status"]) == (200, "degraded")
    assert reply.json["warnings"] == ["No connection to cell 1."]
    assert b"lakelog_cells_unreachable 1.0" in metrics.body
    assert b'lakelog_hot_tables{held_by="messages"}' in metrics.body
    assert (again.json["status"], again.json["warnings"]) == ("ready", [])
    assert [vars(each)["event"] for each in caplog.records] == ["cell_unreachable", "cell_reachable"]


async def test_dead_letters_that_retention_removed_are_counted() -> None:
    async with world() as made:
        made.engine.dead_letter_expiry.removed += 4
        metrics, again = await made.call("GET", "/metrics"), await made.call("GET", "/metrics")
    assert b"lakelog_dead_letters_expired_total 4.0" in metrics.body
    assert b"lakelog_dead_letters_expired_total 4.0" in again.body


async def test_messages_that_a_failover_lost_are_reported() -> None:
    async with world() as made:
        made.engine.losses.by_cell[0] += 3
        health, metrics = await made.call("GET", "/healthz"), await made.call("GET", "/metrics")
        again = await made.call("GET", "/metrics")
    lost = "A failover of cell 0 lost 3 messages that this server had acknowledged."
    assert [each for each in health.json["warnings"] if each.startswith(lost)]
    assert b"lakelog_lost_messages_total 3.0" in metrics.body
    assert b"lakelog_lost_messages_total 3.0" in again.body
