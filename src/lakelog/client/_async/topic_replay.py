"""The replay of a topic: a range of its messages through a handler, beside live groups."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client.consumer.running import AsyncConsumerLoop
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.replaying.options import OnProgress, ReplayOptions
from lakelog.client.replaying.request import ReplayRequest
from lakelog.client.values import ReplayProgress
from lakelog.client.worker.handlers import HandlerFunction, OnDead

T = TypeVar("T")


class AsyncTopicReplay(Generic[T]):
    """The replay of `AsyncTopic`."""

    _state: AsyncTopicState
    _builder: MessageBuilder[T]

    async def replay(
        self,
        handler: HandlerFunction[T] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        name: str | None = None,
        concurrency: int = 1,
        batch: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        on_error: OnDead[T] | None = None,
        on_progress: OnProgress | None = None,
    ) -> ReplayProgress:
        """Call a handler for each message of a range, and return when all are handled. Live groups are unaffected.

        The range is resolved to offsets when the replay begins: messages that are published later are not part of it.
        Messages of a partition, or with a concurrency of more than 1 those of a key, are handled in order. Expired
        messages are handled too.

        With a `name`, the position is stored on the server every second, and another call with the name continues there
        with the same range. A process that is killed repeats at most the messages of its last second and those in work.
        The position is that of the cursor group `replay-<name>`; delete the group to forget it. If a second process
        calls replay with the name, it takes over, and the first one raises `Conflict`.

        Args:
            handler: A function of `(value)` or `(value, delivery)`, or with `batch` of `(batch)`, as for `subscribe`.
                Deliveries have no answers: a message is finished when the handler returns. If the handler raises, the
                replay stops and raises the error, and the stored position is at or before the failed message.
            since: Begin at the first message that was appended at this time or later: a datetime with a time zone.
                Default: None, the oldest message. A replay that continues uses its stored position instead.
            until: End before the first message that was appended at this time or later. Default: None, all messages
                that exist when the replay begins; with a name, when the first call with the name began.
            name: The name of the replay in the environment, for one topic: up to 113 of the characters a-z, 0-9, dot,
                underscore and hyphen. Default: None, nothing is stored.
            concurrency: Handlers that run at the same time, 1 or more. Default: 1.
            batch: Call the handler with up to that many messages of one partition at once, from 1 to 10,000. A message
                that it names with `batch.fail` has failed. Default: None, the handler gets single messages.
            rate: Messages to handle in a second at most, above zero. Default: None, no limit.
            dry_run: Count the messages and return, without calling the handler or storing anything. Default: False.
            on_error: A function of `(delivery, error)`, called when the handler raised. If it returns, the message
                counts as failed and the replay continues; if it raises, the replay stops. Default: None, which stops.
            on_progress: A function of `(progress)`, called every second and at the end. Default: None.

        Raises:
            InvalidRequest: An argument is not valid.
            TopicNotFound: The topic does not exist.
            Conflict: Another process runs the replay now, the name is that of a replay of another topic, or the topic
                was deleted and created again.
        """
        self._state.calls.check_open()
        request = ReplayRequest(topic=self._state.name, since=since, until=until, name=name)
        options = ReplayOptions(
            handler=handler,
            concurrency=concurrency,
            batch=batch,
            rate=rate,
            dry_run=dry_run,
            on_error=on_error,
            on_progress=on_progress,
        )
        if handler is not None:
            options.checked_handler()
        # Arrow loads slowly, and only a replay that runs needs it.
        from lakelog.client.replaying.replay import run_replay

        loop, pool = AsyncConsumerLoop(), self._state.pool
        try:
            return await loop.run(
                run_replay(request, options, self._builder.codec, pool.settings, self._state.calls.policy)
            )
        finally:
            loop.stop()
