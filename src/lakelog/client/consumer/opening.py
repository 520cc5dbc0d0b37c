"""Opens a consumer once, however many callers wait for it."""

from __future__ import annotations

import asyncio

from lakelog.client.consumer.core import ConsumerCore
from lakelog.client.consumer.lease_consumer import LeaseConsumer
from lakelog.client.consumer.options import ConsumerOptions
from lakelog.client.consumer.reading_consumer import ReadingConsumer
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.pool import WorkerSettings


class Opening:
    """The opening of one consumer, in its event loop. After a failure, the next caller tries again."""

    def __init__(
        self, options: ConsumerOptions, group: str | None, settings: WorkerSettings, policy: CallRetryPolicy
    ) -> None:
        self._options = options
        self._group = group
        self._settings = settings
        self._policy = policy
        self._task: asyncio.Task[ConsumerCore] | None = None

    async def opened(self) -> ConsumerCore:
        """Return the started consumer."""
        if self._task is None or (self._task.done() and (self._task.cancelled() or self._task.exception())):
            self._task = asyncio.create_task(self._open(), name="lakelog-consumer-open")
        return await asyncio.shield(self._task)

    async def close(self, seconds: float) -> None:
        """Stop the consumer, also one that is being opened."""
        if self._task is None:
            return
        await asyncio.wait([self._task])
        if not self._task.cancelled() and self._task.exception() is None:
            await self._task.result().stop(seconds)

    async def _open(self) -> ConsumerCore:
        consumer = self._make()
        await consumer.start()
        return consumer

    def _make(self) -> ConsumerCore:
        options = self._options
        if options.group_kind == "lease" and self._group is not None:
            return LeaseConsumer(options, self._group, self._settings, self._policy)
        return ReadingConsumer(options, self._group, self._settings, self._policy)
