"""The list of rejected messages, which is separate for each environment."""

from __future__ import annotations

from dataclasses import replace

from lakelog.model.outbox import RejectionSource
from lakelog.storage.outbox import StoredRejection
from tests.contract.stores import Backing
from tests.contract.test_catalog import new_scope


def rejection(message_id: str, topic: str = "orders") -> StoredRejection:
    return StoredRejection(
        message_id=message_id,
        source=RejectionSource.SCHEDULED,
        topic=topic,
        code="topic_not_found",
        reason=f"Topic '{topic}' does not exist.",
        payload=b"batch",
        partition=3,
    )


async def test_rejected_messages_are_listed_in_order_until_they_are_removed(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, foreign = await new_scope(one), await new_scope(one)
        added = [rejection("a"), rejection("b", "bills"), rejection("c")]
        await one.rejected.rejected_add(scope, added)
        await one.rejected.rejected_add(foreign, [rejection("a")])
        listed = await other.rejected.rejected_list(scope)
        assert [replace(each, at=None, number=0) for each in listed] == added
        assert all(each.at is not None for each in listed)
        assert [each.message_id for each in await one.rejected.rejected_list(scope, limit=2)] == ["a", "b"]
        behind = await one.rejected.rejected_list(scope, after=listed[0].number)
        assert [each.message_id for each in behind] == ["b", "c"]
        assert [each.message_id for each in await one.rejected.rejected_list(scope, topic="bills")] == ["b"]
        assert await other.rejected.rejected_find(scope, ["c", "a", "missing"]) == [listed[0], listed[2]]
        assert await one.rejected.rejected_remove(scope, ["a", "b", "missing"]) == 2
        assert [each.message_id for each in await other.rejected.rejected_list(scope)] == ["c"]
        assert [each.message_id for each in await other.rejected.rejected_list(foreign)] == ["a"]


async def test_a_message_that_is_rejected_again_has_the_new_reason(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope = await new_scope(one)
        await one.rejected.rejected_add(scope, [rejection("a")])
        (before,) = await one.rejected.rejected_list(scope)
        await one.rejected.rejected_add(scope, [replace(rejection("a"), code="too_large", reason="Too\0 large.")])
        (after,) = await one.rejected.rejected_list(scope)
        assert (after.number, after.code) == (before.number, "too_large")
