"""Why a group is stuck: each cause is made true, explained over HTTP, and ended by its remedy."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import typer.main

from lakelog.cli.app import app as commands
from lakelog.engine import Engine, EngineSettings
from lakelog.engine.clock import ExactClock
from lakelog.engine.groups import silence
from lakelog.engine.log.damage import Damage
from lakelog.errors import Unavailable
from lakelog.model.stuck import StuckCode
from lakelog.server import Drain, HealthSource, ServerSettings, create_app
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.groups.test_reasons import Damaged
from tests.unit.server.harness import Reply, World

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOURS = 12 * 3_600_000


class Group:
    """A group of one server, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.made: World
        self.store = MemoryStore(lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def publish(self, count: int = 1, partition: int = 0, **fields: object) -> None:
        messages = [{"value": each, "partition": partition, **fields} for each in range(count)]
        reply = await self.made.publish("jobs", *messages)
        assert reply.status == 200, reply.body

    async def consume(self, count: int = 1, owner: str = "w1", **fields: object) -> list[dict[str, Any]]:
        ask = {
            "topic": "jobs",
            "group": "billing",
            "owner": owner,
            "max_messages": count,
            "start_from": "earliest",
            "lease_ms": HOURS,
            **fields,
        }
        reply = await self.made.call("POST", "/v1/consume", json=ask)
        assert reply.status == 200, reply.body
        return [message for lease in reply.json["leases"] for message in lease["messages"]]

    async def answer(self, verb: str, *offsets: int, owner: str = "w1", **fields: object) -> Reply:
        for offset in offsets:
            body = {"topic": "jobs", "group": "billing", "owner": owner, "partition": 0, "offset": offset, **fields}
            reply = await self.made.call("POST", f"/v1/{verb}", json=body)
            assert reply.status == 204, reply.body
        return reply

    async def join(self, member: str = "w1") -> None:
        reply = await self.made.call("POST", "/v1/groups/billing/join", json={"topics": ["jobs"], "member_id": member})
        assert reply.status == 200, reply.body

    async def alter(self, **settings: object) -> None:
        assert (await self.made.call("PATCH", "/v1/groups/billing", json=settings)).status == 200

    async def why(self) -> dict[str, Any]:
        """Return the most important cause."""
        reply = await self.made.call("GET", "/v1/groups/billing")
        assert reply.status == 200, reply.body
        found: dict[str, Any] = reply.json["stuck"][0]
        return found

    async def stuck(self, code: StuckCode, since: datetime | None = None, **evidence: object) -> dict[str, Any]:
        """Check the cause, its time and its evidence, and that each command of a remedy exists."""
        found = await self.why()
        assert found["code"] == code, found
        assert found["since"] == (None if since is None else since.isoformat().replace("+00:00", "Z")), found
        assert {name: found["evidence"].get(name) for name in evidence} == evidence, found
        for remedy in found["remedies"]:
            if remedy["cli"] is not None:
                parse(remedy["cli"])
        return found

    async def remedy(self, found: dict[str, Any], contains: str) -> None:
        """Carry out the remedy whose label contains the text."""
        (remedy,) = [each for each in found["remedies"] if contains in each["label"]]
        call = remedy["http"]
        reply = await self.made.call(call["method"], call["path"], json=call["body"])
        assert reply.status == 200, reply.body

    async def fine(self) -> None:
        assert await self.why() == {
            "code": "nothing_wrong",
            "text": "No message waits longer than it must.",
            "since": None,
            "evidence": {},
            "remedies": [],
            "topic": None,
            "partitions": [],
        }


def parse(command: str) -> None:
    """Check that a command and its options exist, without running it."""
    program, *words = shlex.split(command)
    assert program == "lakelog"
    found: Any = typer.main.get_command(commands)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    found.make_context(found.name, words)


@asynccontextmanager
async def group(partitions: int = 1, cells: int = 1) -> AsyncIterator[Group]:
    """A server over stores in memory, with the topic `jobs`."""
    world = Group()

    def clock() -> ExactClock:
        return ExactClock(lambda: round(world.now.timestamp() * 1000))

    stores = {0: world.store, **{cell: MemoryStore(lambda: world.now) for cell in range(1, cells)}}
    engine = Engine(MemoryCatalog(lambda: world.now), dict(stores), EngineSettings(clock=clock))
    await engine.start()
    scope = await engine.catalog.scope_create("default", "default")
    await engine.topics.create(scope, "jobs", partitions)
    drain = Drain()
    app = create_app(engine, ServerSettings(), drain=drain, health=HealthSource(engine, drain, ()))
    world.made = World(engine=engine, app=app, drain=drain, scope=scope, token="")
    world.made.token = await world.made.make_token()
    try:
        yield world
    finally:
        await engine.close()


async def test_nothing_is_wrong_with_a_group_that_works() -> None:
    async with group() as made:
        await made.publish(3)
        await made.consume(2)
        await made.answer("ack", 0, 1)
        await made.consume()
        await made.fine()
        await made.answer("ack", 2)
        await made.fine()


async def test_paused() -> None:
    async with group() as made:
        await made.consume()
        made.wait(60)
        await made.publish()
        for topic in ({}, {"topic": "jobs"}):
            await made.made.call("POST", "/v1/groups/billing/pause", json=topic)
            made.wait(60)
            assert await made.consume() == []
            found = await made.stuck(StuckCode.PAUSED, BEGIN + timedelta(seconds=60), paused="jobs" if topic else "*")
            await made.remedy(found, "Resume it")
        assert len(await made.consume()) == 1
        await made.fine()


async def test_no_member() -> None:
    async with group() as made:
        await made.join()
        await made.publish()
        made.wait(20)
        left = await made.made.call("POST", "/v1/groups/billing/leave", json={"member_id": "w1"})
        assert left.status == 204
        made.wait(60)
        # Since the last member left, not since the message was published.
        found = await made.stuck(StuckCode.NO_MEMBER, BEGIN + timedelta(seconds=20), members=0, lag=1)
        assert [each["label"] for each in found["remedies"]] == ["Start a worker of group 'billing' that reads 'jobs'"]
        await made.join()
        assert (await made.why())["code"] == StuckCode.CAPACITY
        assert len(await made.consume()) == 1
        await made.fine()


async def test_window_full() -> None:
    async with group() as made:
        await made.consume()
        await made.alter(window=2)
        await made.publish(3)
        made.wait(5)
        assert len(await made.consume(3)) == 2
        made.wait(5)
        assert await made.consume() == []
        since = BEGIN + timedelta(seconds=5)
        found = await made.stuck(StuckCode.WINDOW_FULL, since, window=2, leased=2, retries=0, owners=1)
        await made.remedy(found, "Raise the window to 4")
        assert len(await made.consume(4)) == 1
        await made.fine()


async def test_key_blocked() -> None:
    async with group() as made:
        await made.publish(3, key="a")
        await made.consume()
        await made.answer("nack", 0, delay_ms=HOURS)
        assert await made.consume(3) == []
        made.wait(60)
        found = await made.stuck(StuckCode.KEY_BLOCKED, BEGIN, offset=0, messages=2, failures=1)
        await made.remedy(found, "Give up message 0")
        assert [each["offset"] for each in await made.consume(3)] == [1, 2]
        await made.fine()


async def test_partition_order_blocked() -> None:
    async with group() as made:
        await made.consume(order="partition")
        await made.publish(3)
        await made.consume(order="partition")
        await made.answer("nack", 0, delay_ms=HOURS)
        assert await made.consume(3, order="partition") == []
        found = await made.stuck(StuckCode.KEY_BLOCKED, BEGIN, offset=0, messages=2, failures=1)
        await made.remedy(found, "deliver again from 0")
        assert [each["offset"] for each in await made.consume(3, order="partition")] == [0, 1, 2]


async def test_hot_key() -> None:
    async with group() as made:
        await made.publish(1, key="a")
        await made.consume()
        await made.publish(120, key="a")
        await made.publish(1, key="b")
        # The message of the other key is delivered, so the hot key's messages were considered and skipped.
        assert [each["key"] for each in await made.consume(200)] == ["b"]
        found = await made.stuck(StuckCode.HOT_KEY, BEGIN, offset=1, messages=120, skipped=120)
        await made.remedy(found, "any order")
        await made.answer("ack", 0)
        assert len(await made.consume(200)) == 120
        await made.fine()


async def test_retry_wave() -> None:
    async with group() as made:
        await made.publish(3)
        await made.consume(3)
        await made.answer("nack", 0, 1, 2, delay_ms=HOURS)
        made.wait(60)
        assert await made.consume(3) == []
        found = await made.stuck(StuckCode.RETRY_WAVE, BEGIN, messages=3, failures=1, first_due_ms=HOURS - 60_000)
        await made.remedy(found, "deliver again from 0")
        assert len(await made.consume(3)) == 3
        await made.fine()


async def test_slow_owner() -> None:
    async with group() as made:
        await made.publish(3)
        await made.consume(1)
        await made.consume(1, owner="w2")
        made.wait(59)
        await made.fine()
        made.wait(11)
        evidence = {"owner": "w1", "offset": 0, "messages": 1, "held_ms": 70_000, "waiting": 1}
        found = await made.stuck(StuckCode.SLOW_OWNER, BEGIN, **evidence)
        await made.remedy(found, "Revoke all leases")
        assert len(await made.consume(3, owner="w3")) == 3
        await made.fine()


async def test_an_owner_is_not_slow_if_all_messages_are_leased() -> None:
    async with group() as made:
        await made.publish(2)
        await made.consume(1)
        await made.consume(1, owner="w2")
        made.wait(120)
        await made.fine()


async def test_hung_handler() -> None:
    async with group() as made:
        await made.publish()
        await made.consume()
        made.wait(599)
        await made.fine()
        made.wait(1)
        # No other message waits, and the lease is alive.
        found = await made.stuck(StuckCode.HUNG_HANDLER, BEGIN, owner="w1", offset=0, held_ms=600_000, waiting=0)
        await made.remedy(found, "Revoke all leases")
        assert [each["offset"] for each in await made.consume(owner="w2")] == [0]
        await made.fine()


async def test_crash_loop() -> None:
    async with group() as made:
        await made.publish()
        for _ in range(3):
            while not await made.consume(lease_ms=100):
                made.wait(1)
        made.wait(1)
        assert await made.consume() == [], "the message waits for its next delivery"
        found = await made.stuck(StuckCode.CRASH_LOOP, BEGIN, offset=0, deliveries=3, failures=2)
        assert "Correct the handler" in found["remedies"][0]["label"]
        await made.publish()
        await made.remedy(found, "Give up message 0")
        assert [each["offset"] for each in await made.consume(2)] == [1]
        await made.fine()


async def test_suspects_alone() -> None:
    async with group(partitions=2) as made:
        await made.publish(1, partition=1)
        assert await made.consume(owner="w2")
        await made.publish(1, partition=0)
        assert await made.consume(lease_ms=100)
        made.wait(1)
        # The owner died. The other worker holds a message, so it does not get the suspect.
        assert await made.consume(owner="w2") == []
        found = await made.stuck(StuckCode.SUSPECTS_ALONE, made.now, messages=1, offset=0)
        assert "one more worker" in found["remedies"][0]["label"]
        assert [each["offset"] for each in await made.consume(owner="w3")] == [0]
        await made.fine()


async def test_capacity() -> None:
    async with group(partitions=2) as made:
        await made.join()
        await made.publish(1, partition=0)
        await made.publish(2, partition=1)
        made.wait(3)
        await made.consume(1)
        found = await made.stuck(StuckCode.CAPACITY, BEGIN, members=1, working_on=1)
        assert "Start more workers" in found["remedies"][0]["label"]
        await made.consume(9)
        await made.consume(9)
        await made.fine()


async def test_retention_cut() -> None:
    async with group() as made:
        await made.consume()
        await made.publish(5)
        assert (await made.made.call("POST", "/v1/topics/jobs/purge")).status == 200
        await made.stuck(StuckCode.RETENTION_CUT, None, messages=5, committed=5)
        await made.publish()
        assert len(await made.consume()) == 1
        await made.fine()


async def test_filter_passes_nothing() -> None:
    async with group() as made:
        await made.consume(filter="value = -1")
        await made.publish(25)
        assert await made.consume(30, filter="value = -1") == []
        found = await made.stuck(StuckCode.FILTER_PASSES_NOTHING, None, filter="value = -1", filtered=25)
        await made.remedy(found, "Remove the filter")
        await made.remedy(found, "left out")
        assert len(await made.consume(30)) == 25
        await made.fine()


async def test_the_filter_of_one_topic_passes_nothing() -> None:
    async with group() as made:
        await made.consume()
        await made.alter(topic="jobs", filter="value = -1")
        await made.publish(25)
        assert await made.consume(30) == []
        found = await made.stuck(StuckCode.FILTER_PASSES_NOTHING, None, filter="value = -1", filtered=25)
        assert "--topic jobs --filter" in found["text"]
        await made.remedy(found, "Remove the filter")
        await made.remedy(found, "left out")
        assert len(await made.consume(30)) == 25
        await made.fine()


async def test_rebalancing() -> None:
    async with group(partitions=2) as made:
        cursor = {"topics": ["jobs"], "kind": "cursor", "start_from": "earliest"}
        for member in ("a", "b"):
            joined = await made.made.call("POST", "/v1/groups/billing/join", json={**cursor, "member_id": member})
            assert joined.status == 200, joined.body
        await made.publish(1, partition=0)
        await made.publish(1, partition=1)
        found = await made.stuck(StuckCode.REBALANCING, BEGIN)
        assert len(found["partitions"]) == 1 and found["remedies"] == []
        # The first member gives the partition up, and the second one gets it.
        for member in ("a", "b"):
            beat = {"member_id": member, "generation": joined.json["generation"]}
            reply = await made.made.call("POST", "/v1/groups/billing/heartbeat", json=beat)
            assert reply.status == 200, reply.body
        await made.fine()


async def test_no_position() -> None:
    async with group() as made:
        await made.join()
        await made.publish()
        other = await made.made.call("POST", "/v1/topics", json={"name": "other", "partitions": 1})
        assert other.status == 201
        lag = (await made.made.call("GET", "/v1/groups/billing/lag", query="topic=other")).json["partitions"][0]
        assert lag["stuck"]["code"] == StuckCode.NO_POSITION
        begin = next(each for each in lag["stuck"]["remedies"] if each["http"] is not None)
        parse(begin["cli"])
        call = begin["http"]
        assert (await made.made.call(call["method"], call["path"], json=call["body"])).status == 200
        lag = (await made.made.call("GET", "/v1/groups/billing/lag", query="topic=other")).json["partitions"][0]
        assert lag.get("stuck") is None


async def test_damaged_segment() -> None:
    async with group() as made:
        await made.consume()
        await made.publish(3)
        made.made.engine.groups._progress.damage = Damaged(p0=Damage(0, 2))
        made.wait(9)
        found = await made.stuck(StuckCode.DAMAGED_SEGMENT, BEGIN, first_offset=0, end_offset=2)
        await made.remedy(found, "Give up the messages below 2")
        made.made.engine.groups._progress.damage = Damaged()
        assert [each["offset"] for each in await made.consume(3)] == [2]
        await made.fine()


async def test_unresponsive_cell(monkeypatch: Any) -> None:
    async with group(partitions=2, cells=2) as made:
        await made.consume()
        await made.publish(1, partition=0)
        described = await made.made.engine.topics.describe(made.made.scope, "jobs")
        dead = described.topic.cells[1]
        other = made.made.engine.cells[dead]
        clock = other.clock

        async def silent() -> datetime:
            await asyncio.Event().wait()
            raise Unavailable

        monkeypatch.setattr(silence, "SILENT_SECONDS", 0.05)
        monkeypatch.setattr(other, "clock", silent)
        found = await made.stuck(StuckCode.UNRESPONSIVE_CELL, None, cell=dead)
        assert found["partitions"] == [1]
        reply = (await made.made.call("GET", "/v1/groups/billing")).json
        assert reply["status"] == "unresponsive" and [each["lag"] for each in reply["progress"]] == [1, 0]
        monkeypatch.setattr(other, "clock", clock)
        assert (await made.why())["code"] != StuckCode.UNRESPONSIVE_CELL
