"""Opens a consumer once, however many callers wait for it."""

from __future__ import annotations

import asyncio

from lakelog.client.consumer.lease_consumer import LeaseConsumer
from lakelog.client.consumer.options import ConsumerOptions
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.pool import WorkerSettings


class Opening:
    """The opening of one consumer, in its event loop. After a failure, the next caller tries again."""

    def __init__(self, options: ConsumerOptions, settings: WorkerSettings, policy: CallRetryPolicy) -> None:
        self._options = options
        self._settings = settings
        self._policy = policy
        self._task: asyncio.Task[LeaseConsumer] | None = None

    async def opened(self) -> LeaseConsumer:
        """Return the started consumer."""
        if self._task is None or (self._task.done() and (self._task.cancelled() or self._task.exception())):
            self._task = asyncio.create_task(self._open(), name="lakelog-consumer-open")
        return await asyncio.shield(self._task)

    async def _open(self) -> LeaseConsumer:
        consumer = LeaseConsumer(self._options, self._settings, self._policy)
        await consumer.start()
        return consumer
