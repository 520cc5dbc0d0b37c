"""Schemas in the engine: the feature level, changes at the same time, caches, and refused messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lakelog.batches import encode_messages
from lakelog.engine import Engine, Frame
from lakelog.engine.callers import Caller
from lakelog.engine.log.validators import SchemaValidator
from lakelog.engine.operations import bind
from lakelog.errors import Conflict, SchemaIncompatible, SchemaViolation
from lakelog.model.kinds import Compatibility
from lakelog.model.levels import FeatureLevel
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from lakelog.model.schema import SetSchemaRequest
from lakelog.model.topic import Scope
from lakelog.model.topic_info import AlterTopicRequest
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Payload
from lakelog.wire.operations import topics

JSON = "application/json"
OBJECT = {"type": "object"}


async def open_engine() -> tuple[Engine, Scope]:
    catalog = MemoryCatalog()
    engine = Engine(catalog, {0: MemoryStore()})
    await engine.start()
    scope = await catalog.scope_create("shop", "dev")
    await engine.topics.create(scope, "orders", 2)
    return engine, scope


async def set_schema(engine: Engine, scope: Scope, schema: Any, mode: Compatibility | None = None) -> int:
    asked = SetSchemaRequest(topic="orders", schema=schema, compatibility=mode)
    return (await engine.schemas.set(scope, asked)).version


async def test_a_schema_needs_the_fourth_level(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, scope = await open_engine()
    monkeypatch.setattr(engine.catalog.groups, "level", FeatureLevel.THIRD)
    with pytest.raises(Conflict, match="Schemas of topics need feature level 4"):
        await set_schema(engine, scope, OBJECT)
    with pytest.raises(Conflict, match="feature level 4"):
        await engine.schemas.prepare(OBJECT)
    asked = AlterTopicRequest(topic="orders", columns={"properties": {"id": {"type": "string"}}})
    with pytest.raises(Conflict, match="Columns of topics need feature level 4"):
        await bind(engine).call(topics.ALTER_TOPIC, Caller(scope=scope), asked)
    asked = AlterTopicRequest(topic="orders", masks=["key"])
    with pytest.raises(Conflict, match="Masks of topics need feature level 4"):
        await bind(engine).call(topics.ALTER_TOPIC, Caller(scope=scope), asked)
    await engine.close()


async def test_changes_at_the_same_time_are_compared_one_after_another() -> None:
    """Each is compatible with the first version, and no two of them are compatible with each other."""
    engine, scope = await open_engine()
    await set_schema(engine, scope, {"type": ["string", "integer", "null"]}, Compatibility.FORWARD)
    tried = [set_schema(engine, scope, {"type": kind}) for kind in ("string", "integer", "null")]
    results = await asyncio.gather(*tried, return_exceptions=True)
    assert [each for each in results if isinstance(each, int)] == [2]
    assert sum(isinstance(each, SchemaIncompatible) for each in results) == 2
    await engine.close()


async def test_a_new_version_is_used_by_the_next_publish() -> None:
    engine, scope = await open_engine()
    message = Message(value=b"{}", content_type=JSON)
    [first] = await engine.publisher.messages(scope, "orders", [message])
    assert isinstance(first, Receipt)
    await set_schema(engine, scope, {**OBJECT, "required": ["id"]})
    for _ in range(2):
        assert engine.publisher.submit_one(scope, "orders", message) is None
        [refused] = await engine.publisher.messages(scope, "orders", [message])
        assert isinstance(refused, SchemaViolation) and "index" not in refused.subject
    await set_schema(engine, scope, OBJECT)
    [accepted] = await engine.publisher.messages(scope, "orders", [message])
    assert isinstance(accepted, Receipt)
    for _ in range(100):
        # The engine's own announcement drops the topic from the cache a moment later.
        await engine.topics.find(scope, "orders")
        if engine.publisher.submit_one(scope, "orders", message) is not None:
            break
    else:
        pytest.fail("the fast path accepts no valid message")
    await engine.close()


async def test_only_the_wrong_messages_of_a_call_are_refused() -> None:
    engine, scope = await open_engine()
    await set_schema(engine, scope, OBJECT)
    values = [b"{}", b"1", b"{}", b"[]"]
    messages = [Message(value=value, content_type=JSON, idempotency_key=f"{n}") for n, value in enumerate(values)]
    results = await engine.publisher.messages(scope, "orders", messages)
    assert [isinstance(each, Receipt) for each in results] == [True, False, True, False]
    assert [each.index for each in results if isinstance(each, SchemaViolation)] == [1, 3]
    again = await engine.publisher.messages(
        scope, "orders", [Message(value=b"{}", idempotency_key="1", content_type=JSON)]
    )
    assert isinstance(again[0], Receipt) and not again[0].duplicate, "a refused message has not used its key"
    await engine.close()


async def test_large_calls_are_validated_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, scope = await open_engine()
    await set_schema(engine, scope, OBJECT)
    used: list[bool] = []
    for name in ("refusals", "batch_refusals"):
        monkeypatch.setattr(SchemaValidator, name, _noting(getattr(SchemaValidator, name), used))
    messages = [Message(value=b'{"text": "%s"}' % (b"x" * 100), content_type=JSON)] * 1000
    await engine.publisher.messages(scope, "orders", messages[:2])
    frames = [Frame(partition=0, payload=Payload(data=encode_messages(messages[:n]), count=n)) for n in (3, 1000)]
    for frame in frames:
        await engine.publisher.frames(scope, "orders", [frame])
    await engine.publisher.messages(scope, "orders", messages)
    assert used == [False, False, True, True]
    await engine.close()


def _noting(work: Callable[..., Any], used: list[bool]) -> Callable[..., Any]:
    """Return the function, which then notes whether it runs in another thread than the event loop."""

    def noted(*arguments: Any) -> Any:
        used.append(threading.current_thread() is not threading.main_thread())
        return work(*arguments)

    return noted
