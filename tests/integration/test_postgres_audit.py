"""A change of the catalog and its audit record on PostgreSQL: both are committed, or none of them."""

from __future__ import annotations

import asyncpg
import pytest

from lakelog.model.audit import AuditEntry, AuditOutcome, AuditQuery
from lakelog.model.group import GroupKind, GroupSettings
from lakelog.storage.audit import Change, recording
from lakelog.storage.postgres import migrate, open_catalog


async def test_a_change_whose_record_cannot_be_written_is_not_made(database: str) -> None:
    await migrate(database)
    catalog = await open_catalog(database)
    admin = await asyncpg.connect(database)
    try:
        scope = await catalog.scope_create("p", "e")
        group = await catalog.groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
        await admin.execute("alter table lakelog.audit add constraint away check (false)")
        entry = AuditEntry(operation="alter_group", text="altered", outcome=AuditOutcome.DONE)
        with recording(Change(scope, entry)), pytest.raises(asyncpg.CheckViolationError):
            await catalog.groups.group_alter(group, GroupSettings(window=5), frozenset())
        assert await catalog.groups.group_find(scope, "billing") == group
        await admin.execute("alter table lakelog.audit drop constraint away")
        with recording(Change(scope, entry)):
            await catalog.groups.group_alter(group, GroupSettings(window=5), frozenset())
        (record,) = await catalog.audit.audit_list(scope, AuditQuery())
        assert record.actor == await admin.fetchval("select session_user")
    finally:
        await admin.close()
        await catalog.close()


async def test_records_are_deleted_after_400_days_and_only_by_the_trim(database: str) -> None:
    await migrate(database)
    catalog = await open_catalog(database)
    admin = await asyncpg.connect(database)
    try:
        scope = await catalog.scope_create("p", "e")
        for _ in range(2):
            entry = AuditEntry(operation="x", text="did x", outcome=AuditOutcome.DONE)
            last = await catalog.audit.audit_add(scope, entry)
        await admin.execute("update lakelog.audit set at = at - interval '401 days' where number <> $1", last.number)
        assert await catalog.audit.audit_trim() == 1
        assert [each.number for each in await catalog.audit.audit_list(scope, AuditQuery())] == [last.number]
        await admin.execute("set role lakelog_service")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await admin.execute("delete from lakelog.audit")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await admin.execute("update lakelog.audit set actor = 'other'")
    finally:
        await admin.close()
        await catalog.close()
