"""The methods of a client that find a message by its id."""

from __future__ import annotations

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.arguments import check_text
from lakelog.model.message_story import MessageStory, StoryQuery
from lakelog.model.outbox import MessageQuery, MessageStatus
from lakelog.wire.operations.outbox import FIND_MESSAGE, MESSAGE_STORY


class AsyncLakelogMessages:
    """Finds messages by their ids; a base of the client."""

    _calls: AsyncCalls

    async def message(self, id: str) -> MessageStatus:
        """Return whether a message is in the log, and its partition and offset.

        Args:
            id: The id of a receipt. A message that was published in a transaction is found for a day after the relay
                has moved it.
        """
        return await self._calls.call(FIND_MESSAGE, MessageQuery(message_id=id))

    async def message_story(self, id: str, *, topic: str | None = None) -> MessageStory:
        """Return when a message was appended, and what happened to it in each group.

        Groups record deliveries that did not end well for 30 days, with the owner, the error and the time, and the end
        of a message that had one. For any other message, the story says whether it is finished.

        Args:
            id: The id of the message. An id that no topic of the environment has raises `TopicNotFound`.
            topic: The topic of the message. Default: the topic is found by the id. The id of a message that was
                published in a transaction or with a delay does not tell its topic.
        """
        return await self._calls.call(MESSAGE_STORY, StoryQuery(message_id=check_text("id", id), topic=topic))
