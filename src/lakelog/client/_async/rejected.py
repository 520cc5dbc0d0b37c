"""Rejected messages: lists them, publishes them again, and discards them."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.names import check_name
from lakelog.model.outbox import MAX_REJECTED_PAGE, RejectedChange, RejectedChanged, RejectedMessage, RejectedQuery
from lakelog.wire.operations import outbox as operations


class AsyncRejected:
    """Messages that were refused after they were published, as `log.rejected`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, topic: str | None = None, *, limit: int = 100) -> list[RejectedMessage]:
        """Return rejected messages, the oldest first.

        Args:
            topic: Only messages to this topic. Default: all.
            limit: The largest number of messages to return, 1 or more. Default: 100.
        """
        found: list[RejectedMessage] = []
        query = RejectedQuery(topic=topic, limit=min(limit, MAX_REJECTED_PAGE))
        while True:
            page = await self._calls.call(operations.LIST_REJECTED, query)
            found += page.messages
            if page.next is None or len(found) >= limit:
                return found[:limit]
            query = RejectedQuery(topic=topic, after=page.next, limit=min(limit - len(found), MAX_REJECTED_PAGE))

    async def retry(self, ids: Sequence[str] = (), *, topic: str | None = None) -> RejectedChanged:
        """Publish rejected messages again, each once.

        Args:
            ids: The ids of the messages, at most 1000. Default: the 1000 oldest messages of the topic.
            topic: Only messages to this topic. Needed without ids.
        """
        return await self._calls.call(operations.RETRY_REJECTED, _change(ids, topic))

    async def discard(self, ids: Sequence[str] = (), *, topic: str | None = None) -> RejectedChanged:
        """Remove rejected messages from the list. They are never published.

        Args:
            ids: The ids of the messages, at most 1000. Default: the 1000 oldest messages of the topic.
            topic: Only messages to this topic. Needed without ids.
        """
        return await self._calls.call(operations.DISCARD_REJECTED, _change(ids, topic))


def _change(ids: Sequence[str], topic: str | None) -> RejectedChange:
    return RejectedChange(message_ids=tuple(ids), topic=check_name("topic", topic) if topic else None)
