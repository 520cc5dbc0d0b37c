"""A cell that only other servers have in their configuration yet: calls say so, and are not internal errors."""

from __future__ import annotations

import pytest

from lakelog.engine import Engine
from lakelog.errors import Unavailable
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.model.lease import ConsumeRequest
from lakelog.model.message import Message
from lakelog.model.topic import Retention, TopicSettings
from lakelog.storage.memory import MemoryCatalog, MemoryStore


async def test_a_cell_that_is_not_here_yet() -> None:
    catalog, stores = MemoryCatalog(), {0: MemoryStore(), 1: MemoryStore()}
    new, old = Engine(catalog, stores), Engine(catalog, {0: stores[0]})
    scope = await catalog.scope_create("p", "e")
    keep_one = TopicSettings(retention=Retention(max_count=1))
    await new.topics.create(scope, "wide", 2, keep_one)
    await new.topics.create(scope, "zeta", 1, keep_one)
    await new.publisher.messages(scope, "zeta", [Message(value=b"a"), Message(value=b"b")])
    for call in (
        old.publisher.messages(scope, "wide", [Message(value=b"x", partition=1)]),
        old.topics.describe(scope, "wide"),
        old.leases.consume(scope, ConsumeRequest(topic="wide", group="g", owner="ann")),
    ):
        with pytest.raises(Unavailable, match="not here yet"):
            await call
    await RetentionEnforcer(old).work()
    assert (await old.topics.describe(scope, "zeta")).heads[0].log_start == 1, "the pass went on to the next topic"
    await new.close()
    await old.close()
