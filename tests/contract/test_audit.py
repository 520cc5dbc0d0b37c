"""Audit records: written with the change of the catalog that they record, and listed by environment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakelog.errors import Conflict
from lakelog.model.audit import Actor, ActorKind, AuditEntry, AuditOutcome, AuditQuery, AuditRecord
from lakelog.model.group import GroupKind, GroupSettings
from lakelog.model.mark import MarkQuery
from lakelog.model.topic import Scope, TopicSettings
from lakelog.storage.audit import Change, note_change, recording
from lakelog.storage.store import Catalog
from tests.contract.stores import Backing
from tests.contract.test_catalog import new_scope

ADA = Actor(kind=ActorKind.TOKEN, id="t1", name="Ada")


def entry(operation: str = "alter_topic", **given: object) -> AuditEntry:
    values = {"text": f"did {operation}", "outcome": AuditOutcome.DONE, "actor": ADA, **given}
    return AuditEntry(operation=operation, **values)  # type: ignore[arg-type]


async def listed(catalog: Catalog, scope: Scope, **given: object) -> list[AuditRecord]:
    return await catalog.audit.audit_list(scope, AuditQuery(**given))  # type: ignore[arg-type]


async def test_a_change_of_the_catalog_writes_one_record(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        change = Change(scope, entry("create_topic", objects={"topic": "a\0b"}, address="10.0.0.1", request_id="r1"))
        with recording(change):
            note_change({"window": 1}, {"window": 2})
            topic = await one.topic_create(scope, "orders", TopicSettings(), [0])
            # A second change of the same call has no record of its own.
            await one.topic_delete(topic)
        (record,) = await listed(other, scope)
        assert (record.operation, record.text, record.outcome) == ("create_topic", "did create_topic", "done")
        assert (record.actor_kind, record.actor, record.actor_name) == ("token", "t1", "Ada")
        assert (record.address, record.request_id) == ("10.0.0.1", "r1")
        assert (record.before, record.after) == ({"window": 1}, {"window": 2})
        assert await listed(other, await new_scope(one)) == []


async def test_a_change_that_is_refused_has_no_record(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        group = await one.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
        await other.groups.group_alter(group, GroupSettings(window=5), frozenset())
        with recording(Change(scope, entry())), pytest.raises(Conflict):
            await one.groups.group_alter(group, GroupSettings(window=6), frozenset())
        with recording(Change(scope, entry())):
            assert not await one.token_revoke(scope, "missing")
        assert await listed(one, scope) == []


async def test_records_are_listed_page_by_page_and_selected(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope = await new_scope(one)
        for number in range(5):
            objects = {"group": "billing"} if number % 2 else {"topic": "orders"}
            await one.audit.audit_add(scope, entry(f"op{number}", objects=objects, given={"n": str(number)}))
        newest = await listed(one, scope, limit=2)
        assert [each.operation for each in newest] == ["op4", "op3"]
        rest = await listed(one, scope, after=newest[-1].number)
        assert [each.operation for each in rest] == ["op2", "op1", "op0"]
        assert [each.operation for each in await listed(one, scope, group="billing")] == ["op3", "op1"]
        assert [each.operation for each in await listed(one, scope, topic="orders")] == ["op4", "op2", "op0"]
        assert [each.given for each in await listed(one, scope, operation="op2")] == [{"n": "2"}]
        assert await listed(one, scope, actor="t2") == []
        at = rest[0].at
        assert [each.operation for each in await listed(one, scope, since=at, until=newest[-1].at)] == ["op2"]
        assert await listed(one, scope, until=rest[-1].at - timedelta(seconds=1)) == []


async def test_a_record_that_was_begun_is_finished(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        begun = await one.audit.audit_add(scope, entry("redrive", outcome=AuditOutcome.BEGUN))
        assert [each.outcome for each in await listed(other, scope)] == ["begun"]
        await one.audit.audit_finish(begun.number, AuditOutcome.DONE, {"redriven": 3})
        assert [(each.outcome, each.after) for each in await listed(other, scope)] == [("done", {"redriven": 3})]


async def test_a_user_of_the_database_is_the_actor_without_a_token(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope = await new_scope(one)
        await one.audit.audit_add(scope, AuditEntry(operation="x", text="did x", outcome=AuditOutcome.DONE))
        (record,) = await listed(one, scope)
        assert record.actor_kind == "database"
        assert record.actor
        assert await one.audit.audit_trim() == 0


async def test_marks_are_the_changes_that_were_made(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope = await new_scope(one)
        billing, orders, both = {"group": "billing"}, {"topic": "orders"}, {"group": "billing", "topic": "orders"}
        records = [
            *(entry("mark", text="deploy"), entry("pause_group", objects=billing), entry("seek", objects=both)),
            *(entry("alter_topic", objects=orders), entry("pause_group", objects={"group": "other"})),
            *(entry("create_token"), entry("seek", objects=both, outcome=AuditOutcome.REFUSED)),
        ]
        for each in records:
            await one.audit.audit_add(scope, each)

        async def marks(**given: object) -> list[tuple[str, str | None]]:
            found = await one.audit.mark_list(scope, MarkQuery(**given))  # type: ignore[arg-type]
            return [(each.operation, each.objects.get("group")) for each in found]

        deploy, paused, sought = ("mark", None), ("pause_group", "billing"), ("seek", "billing")
        assert await marks() == [("pause_group", "other"), ("alter_topic", None), sought, paused, deploy]
        assert await marks(group="billing") == [sought, paused, deploy]
        assert await marks(topic="orders", group="billing") == [("alter_topic", None), sought, paused, deploy]
        assert await marks(topic="bills", group="billing") == [paused, deploy]
        (last, *_) = await one.audit.mark_list(scope, MarkQuery(limit=1))
        assert (await marks(after=last.number, limit=1)) == [("alter_topic", None)]
