"""The methods of a client that find a message by its id."""

from __future__ import annotations

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.message_story import AsyncMessageStories
from lakelog.model.arguments import check_text
from lakelog.model.message_story import MessageStory
from lakelog.model.names import check_name
from lakelog.model.outbox import MessageQuery, MessageStatus
from lakelog.wire.operations.outbox import FIND_MESSAGE


class AsyncLakelogMessages:
    """Finds messages by their ids; a base of the client."""

    _calls: AsyncCalls
    _stories: AsyncMessageStories

    async def message(self, id: str) -> MessageStatus:
        """Return whether a message is in the log, and its partition and offset.

        Args:
            id: The id of a receipt. A message that was published in a transaction is found for a day after the relay
                has moved it.
        """
        return await self._calls.call(FIND_MESSAGE, MessageQuery(message_id=id))

    async def message_story(self, id: str, *, topic: str | None = None) -> MessageStory:
        """Return when a message was appended, and what happened to it in each group.

        Groups store counters and open work, but no record for each finished message: the story says what follows from
        them and from dead letters. It makes a few calls for each group that reads the topic.

        Args:
            id: The id of the message. An id that no topic of the environment has raises `TopicNotFound`.
            topic: The topic of the message. Default: the topic is found by the id. The id of a message that was
                published in a transaction does not tell its topic.
        """
        if topic is not None:
            check_name("topic", topic)
        return await self._stories.tell(check_text("id", id), topic)
