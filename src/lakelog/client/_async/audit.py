"""Audit records: lists them."""

from __future__ import annotations

import builtins
from datetime import datetime

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.arguments import check_time, check_whole
from lakelog.model.audit import MAX_AUDIT_PAGE, AuditQuery, AuditRecord
from lakelog.wire.operations.audit import LIST_AUDIT


class AsyncAudit:
    """Who changed what, and which calls were refused, as `log.audit`. It needs the right "manage"."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        operation: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> builtins.list[AuditRecord]:
        """Return records of the environment, the newest first.

        Args:
            group: Only records that name this group. Default: all.
            topic: Only records that name this topic. Default: all.
            operation: Only records of this operation, such as "alter_group". Default: all.
            actor: Only records of the token with this id, or of this user of the database. Default: all.
            since: Only records from this time on. Default: from the oldest record on; records are kept for 400 days.
            until: Only records before this time. Default: up to now.
            limit: The largest number of records to return, 1 or more. Default: 100.
        """
        check_whole("limit", limit, 1)
        found: builtins.list[AuditRecord] = []
        after: int | None = None
        while True:
            query = AuditQuery(
                operation=operation,
                group=group,
                topic=topic,
                actor=actor,
                since=since and check_time("since", since),
                until=until and check_time("until", until),
                after=after,
                limit=min(limit - len(found), MAX_AUDIT_PAGE),
            )
            page = await self._calls.call(LIST_AUDIT, query)
            found += page.records
            after = page.next
            if after is None or len(found) >= limit:
                return found
