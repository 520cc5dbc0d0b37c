"""Events in groups become at most one log line per group and second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lakelog.engine import Engine, EngineSettings
from lakelog.engine.groups import activity
from lakelog.engine.leasing.consuming import Leased
from lakelog.model.group import Fixed
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest, LeaveRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.kit.waiting import eventually_async

WISH: dict[str, Any] = {"start_from": "earliest", "retries": Fixed(max=0, seconds=0.0)}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(activity, "EVERY_SECONDS", 0.3)
    caplog.set_level(logging.INFO)


@asynccontextmanager
async def opened(project: str = "default") -> AsyncIterator[tuple[Engine, Scope]]:
    """Ten messages in a partition of topic `orders`."""
    engine = Engine(MemoryCatalog(), {0: MemoryStore()}, EngineSettings(logs_groups=True))
    await engine.start()
    try:
        scope = await engine.catalog.scope_create(project, "default")
        await engine.topics.create(scope, "orders", 1)
        await engine.publisher.messages(scope, "orders", [Message(value=b"x", partition=0)] * 10)
        yield engine, scope
    finally:
        await engine.close()


async def consume(engine: Engine, scope: Scope, owner: str, lease_ms: int = 60_000) -> Leased:
    ask = ConsumeRequest(
        topic="orders", group="billing", owner=owner, max_messages=5, lease_ms=lease_ms, wait_ms=5000, **WISH
    )
    (leased,) = (await engine.leases.consume(scope, ask)).leases
    return leased


async def line(caplog: pytest.LogCaptureFixture) -> Any:
    """The next line about activity, which has to be the only one."""

    def found() -> list[Any]:
        return [record for record in caplog.records if record.name == activity.__name__]

    await eventually_async(found, what="a line")
    (record,) = found()
    caplog.clear()
    return record


async def test_members_that_join_together_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (engine, scope):
        names = [f"w{number}" for number in range(3)]
        asks = [JoinRequest(group="billing", topics=["orders"], member_id=name) for name in names]
        await asyncio.gather(*(engine.members.join(scope, ask) for ask in asks))
        record = await line(caplog)
        assert record.getMessage() == "Group billing: 3 members joined (3 in all)"
        assert record.event == "group_activity"
        assert record.fields == {
            "group": "billing",
            "project": "default",
            "environment": "default",
            "joined": 3,
            "members": 3,
        }
        await engine.members.leave(scope, LeaveRequest(group="billing", member_id="w0"))
        await engine.members.join(scope, JoinRequest(group="billing", topics=["orders"], member_id="w9"))
        said = (await line(caplog)).getMessage()
        assert said == "Group billing: 1 member joined, 1 member left (3 in all)"


async def test_an_expired_session_names_its_member(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (engine, scope):
        await engine.members.join(
            scope, JoinRequest(group="billing", topics=["orders"], member_id="silent", session_ms=1000)
        )
        await line(caplog)
        said = (await line(caplog)).getMessage()
        assert said == "Group billing: 1 session of member silent expired (0 in all)"


async def test_an_expired_lease_names_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (engine, scope):
        await consume(engine, scope, "lost", lease_ms=100)
        await consume(engine, scope, "next")
        await consume(engine, scope, "last")
        said = (await line(caplog)).getMessage()
        assert said == "Group billing: 1 lease of owner lost expired"


async def test_dead_letters_are_counted_and_the_first_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(project="shop") as (engine, scope):
        leased = await consume(engine, scope, "a")
        answer = LeaseAnswer(
            verb=Verb.NACK,
            partition=0,
            token=leased.token,
            offsets=((0, 4),),
            reason="ValueError: no such account\nTraceback",
        )
        await engine.leases.answer(scope, "orders", "billing", "a", [answer])
        record = await line(caplog)
        assert record.getMessage() == (
            "Group billing (shop/default): 5 messages became dead letters (first: orders 0:0, "
            "ValueError: no such account)"
        )
        assert record.fields["first_dead_letter"] == "orders 0:0"


async def test_work_that_goes_well_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (engine, scope):
        leased = await consume(engine, scope, "a")
        done = LeaseAnswer(verb=Verb.ACK, partition=0, token=leased.token, offsets=((0, 4),))
        await engine.leases.answer(scope, "orders", "billing", "a", [done])
    assert caplog.records == []


async def test_what_happened_last_is_written_when_the_engine_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(activity, "EVERY_SECONDS", 3600)
    async with opened() as (engine, scope):
        await engine.members.join(scope, JoinRequest(group="billing", topics=["orders"], member_id="w"))
    assert caplog.messages == ["Group billing: 1 member joined (1 in all)"]
