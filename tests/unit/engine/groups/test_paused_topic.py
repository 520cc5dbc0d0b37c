"""A topic that is paused for all groups hands out nothing, also to groups that begin to read it later."""

from __future__ import annotations

import pytest

from lakelog.engine import Engine
from lakelog.model.group import RequestedSettings
from lakelog.model.lease import ConsumeRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import started


async def got(engine: Engine, scope: Scope, group: str, owner: str = "ann") -> int:
    ask = ConsumeRequest(topic="orders", group=group, owner=owner, wait_ms=50, start_from="earliest")
    return sum(len(lease.offsets) for lease in (await engine.leases.consume(scope, ask)).leases)


@pytest.mark.parametrize("exists", [True, False])
async def test_a_group_that_begins_later_gets_nothing_at_any_server_until_the_topic_goes_on(exists: bool) -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", 1)
        await one.publisher.messages(scope, "orders", [Message(value=b"m"), Message(value=b"n")])
        if exists:
            await other.group_directory.resolve(scope, "billing", RequestedSettings(), create=True)

        assert await one.groups.pause_topic(scope, "orders") == []
        assert [await got(one, scope, "billing"), await got(other, scope, "billing", "bob")] == [0, 0]

        await other.groups.resume_topic(scope, "orders")
        assert await got(other, scope, "billing") == 1
