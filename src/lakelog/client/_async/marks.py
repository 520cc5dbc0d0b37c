"""Marks on the timeline of topics and groups: makes and lists them."""

from __future__ import annotations

import builtins
from datetime import datetime

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.arguments import check_time, check_whole
from lakelog.model.mark import MAX_MARKS, CreateMarkRequest, Mark, MarkQuery
from lakelog.wire.operations import marks as operations


class AsyncMarks:
    """Deploys and other marks, together with changes such as pauses and seeks, as `log.marks`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def create(self, text: str, *, group: str | None = None, topic: str | None = None) -> Mark:
        """Mark the present time, such as that of a deploy. It needs the right "manage".

        Args:
            text: The text, such as "deploy 1.4": 1 to 200 characters.
            group: The group that it concerns. Default: all groups.
            topic: The topic that it concerns. Default: all topics.
        """
        request = CreateMarkRequest(text=text, group=group, topic=topic)
        return await self._calls.call(operations.CREATE_MARK, request)

    async def list(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> builtins.list[Mark]:
        """Return marks and changes of topics and groups, the newest first.

        Marks that concern no single group or topic are always in the list.

        Args:
            group: Only marks of this group, and of `topic` if it is given. Default: all.
            topic: Only marks of this topic. Default: all.
            since: Only marks from this time on. Default: from the oldest on; marks are kept for 400 days.
            until: Only marks before this time. Default: up to now.
            limit: The largest number of marks to return, 1 or more. Default: 100.
        """
        check_whole("limit", limit, 1)
        found: builtins.list[Mark] = []
        after: int | None = None
        while True:
            query = MarkQuery(
                group=group,
                topic=topic,
                since=since and check_time("since", since),
                until=until and check_time("until", until),
                after=after,
                limit=min(limit - len(found), MAX_MARKS),
            )
            page = await self._calls.call(operations.LIST_MARKS, query)
            found += page.marks
            after = page.next
            if after is None or len(found) >= limit:
                return found
