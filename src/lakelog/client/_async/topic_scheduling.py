"""The delayed messages of a topic that wait: lists and cancels them. `topic_publishing` schedules them."""

from __future__ import annotations

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.errors import NotFound
from lakelog.model.arguments import check_text, check_whole
from lakelog.model.scheduled import MAX_LISTED, CancelRequest, ScheduledMessage, ScheduledQuery
from lakelog.wire.operations.scheduled import CANCEL_SCHEDULED, LIST_SCHEDULED


class AsyncTopicScheduling:
    """The methods of `AsyncTopic` for delayed messages that wait."""

    _state: AsyncTopicState

    async def scheduled(self, limit: int = 100) -> list[ScheduledMessage]:
        """Return delayed messages that wait, the earliest first.

        Args:
            limit: The largest number of messages to return, 1 or more. Default: 100.
        """
        left = check_whole("limit", limit, 1)
        found: list[ScheduledMessage] = []
        after: str | None = None
        while left:
            query = ScheduledQuery(topic=self._state.name, after=after, limit=min(left, MAX_LISTED))
            page = await self._state.calls.call(LIST_SCHEDULED, query)
            found += page.messages
            left -= len(page.messages)
            after = page.next
            if after is None:
                break
        return found

    async def cancel(self, message_id: str) -> bool:
        """Cancel a delayed message. Return True if it will not be published, also if it was cancelled before.

        Return False if the message is published already, or if the topic has no such message. A message is either
        cancelled or published, never both.

        Args:
            message_id: The `id` of the receipt.
        """
        request = CancelRequest(topic=self._state.name, message_id=check_text("message_id", message_id))
        try:
            return (await self._state.calls.call(CANCEL_SCHEDULED, request)).cancelled
        except NotFound as error:
            if "id" in error.subject:
                return False
            raise
