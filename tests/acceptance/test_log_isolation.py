"""Environments share nothing: names, messages, idempotency keys, producers, purges and deletes are separate."""

from __future__ import annotations

import os
import uuid

import pytest

from lakelog.engine import Frame, FrameReceipt, Numbered
from lakelog.errors import TopicNotFound
from lakelog.model.position import Earliest
from tests.acceptance.engines import Log, Server
from tests.unit.engine.support import packed, text


async def neighbours(server: Server) -> tuple[Server, Server, Server]:
    """Return two environments of one project, and one of the same name in another project."""
    project, other = f"p{uuid.uuid4().hex}", f"q{uuid.uuid4().hex}"
    scopes = [
        await server.engine.catalog.scope_create(*names)
        for names in ((project, "test"), (project, "live"), (other, "test"))
    ]
    one, two, three = (Server(engine=server.engine, scope=scope) for scope in scopes)
    return one, two, three


async def test_a_topic_is_seen_in_its_environment_alone(log: Log) -> None:
    async with log.server() as server:
        one, *others = await neighbours(server)
        await one.create()
        await one.publish(text("a"))
        for other in others:
            with pytest.raises(TopicNotFound):
                await other.publish(text("b"))
            with pytest.raises(TopicNotFound):
                await other.fetch(Earliest())
            with pytest.raises(TopicNotFound):
                await other.engine.topics.delete(other.scope, other.name)
            assert await other.engine.topics.list(other.scope) == []


async def test_topics_of_one_name_have_logs_of_their_own(log: Log) -> None:
    async with log.server() as server:
        places = await neighbours(server)
        for n, place in enumerate(places):
            await place.create(n + 1)
            await place.publish(*(text(f"{n}-{m}", partition=0) for m in range(n + 2)))
        for n, place in enumerate(places):
            assert len(await place.heads()) == n + 1
            assert await place.values() == [f"{n}-{m}" for m in range(n + 2)]


async def test_idempotency_keys_and_producers_are_each_environments_own(log: Log) -> None:
    async with log.server() as server:
        producer = os.urandom(16)
        for n, place in enumerate(await neighbours(server)):
            await place.create(2)
            (receipt,) = await place.publish(text(f"body {n}", idempotency_key="k", partition=0))
            assert (receipt.offset, receipt.duplicate) == (0, False)
            numbered = Numbered(producer=producer, sequence=0)
            (framed,) = await place.frames(Frame(partition=1, payload=packed(f"frame {n}"), numbered=numbered))
            assert isinstance(framed, FrameReceipt)
            assert (framed.offset, framed.duplicate) == (0, False)


async def test_purge_and_delete_leave_the_neighbours_alone(log: Log) -> None:
    async with log.server() as server:
        one, two, three = await neighbours(server)
        for place in (one, two, three):
            await place.create(2)
            await place.publish(*(text(str(n), partition=0) for n in range(3)))
        assert (await one.engine.topics.purge(one.scope, one.name)).removed == 3
        await two.engine.topics.delete(two.scope, two.name)
        assert await one.values() == []
        assert await three.values() == ["0", "1", "2"]
        assert [topic.name for topic in await three.engine.topics.list(three.scope)] == ["orders"]
