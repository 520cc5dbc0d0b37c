"""Calls the handler of a replay for the messages of a lane, in order, until the lane ends or the handler fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from lakelog.client.consumer.read_message import NoAnswers, ReadMessage
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.replaying.options import ReplayOptions
from lakelog.client.replaying.partition import Lane
from lakelog.client.worker.handlers import BatchHandler, begin_hook, run_async, run_plain
from lakelog.client.worker.threads import HandlerThreads
from lakelog.errors import LakelogError

_HINT = "A message of a replay is finished when the handler returns."


class ReadBatch(NoAnswers):
    """The messages of one call of a batch handler."""

    def __init__(self) -> None:
        super().__init__(_HINT)
        self.given: list[Any] = []
        self.failed: dict[Any, str] = {}


class LaneRunner:
    """Runs lanes: coroutine functions in the event loop, plain functions in threads.

    Args:
        options: The handler and its options.
        is_stopped: Returns whether no further message may be started. Threads call it too.
    """

    def __init__(self, options: ReplayOptions, is_stopped: Callable[[], bool]) -> None:
        self.failed = 0
        """Messages whose error `on_error` has accepted."""
        self._handler = options.checked_handler()
        self._on_error = options.on_error
        self._is_stopped = is_stopped
        self._threads = HandlerThreads()
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """End the threads after their handlers."""
        self._threads.close()

    async def run(self, lane: Lane) -> None:
        """Handle the messages of a lane. Raise the error of the handler, unless `on_error` accepts it."""
        if isinstance(self._handler, BatchHandler):
            return await self._run_batch(self._handler, lane)
        while lane.done < len(lane.messages) and not self._is_stopped():
            if self._handler.is_async:
                error = await self._call_async(lane)
            else:
                # A thread takes the whole lane: changing threads costs more than a short function.
                error = await self._threads.begin(partial(copy_context().run, self._call_plain, lane))
            if error is not None:
                await self._fail([(self._held(lane.messages[lane.done]), error)])
                lane.done += 1

    async def _call_async(self, lane: Lane) -> Exception | None:
        """Handle messages until one fails. Return its error."""
        while lane.done < len(lane.messages) and not self._is_stopped():
            message = lane.messages[lane.done]
            try:
                await run_async(self._handler.function, self._arguments(message))
            except Exception as error:
                return error
            lane.done += 1
        return None

    def _call_plain(self, lane: Lane) -> Exception | None:
        """Do the same in a thread."""
        while lane.done < len(lane.messages) and not self._is_stopped():
            message = lane.messages[lane.done]
            try:
                run_plain(self._handler.function, self._arguments(message), self._loop)
            except Exception as error:
                return error
            lane.done += 1
        return None

    async def _run_batch(self, handler: BatchHandler, lane: Lane) -> None:
        work = ReadBatch()
        failures: list[tuple[ReadMessage, Exception]] = []
        for held in map(self._held, lane.messages):
            try:
                _ = held.message.value
                work.given.append(held)
            except Exception as error:
                failures.append((held, error))
        if work.given:
            try:
                await handler.begin_batch(work, self._threads)
                failures += [(held, LakelogError(reason)) for held, reason in work.failed.items()]
            except Exception as error:
                failures += [(held, error) for held in work.given]
        await self._fail(failures)
        lane.done = len(lane.messages)

    async def _fail(self, failures: list[tuple[ReadMessage, Exception]]) -> None:
        """Ask `on_error` about failed messages. Raise the error if there is no such function, or if it raises."""
        for held, error in failures:
            if self._on_error is None:
                raise _noted(error, held.message)
            await begin_hook(self._on_error, held, (error,), self._threads)
            self.failed += 1

    def _arguments(self, message: ReceivedMessage[Any]) -> tuple[object, ...]:
        if not self._handler.wants_delivery:
            return (message.value,)
        return self._handler.arguments(message.value, self._held(message))

    def _held(self, message: ReceivedMessage[Any]) -> ReadMessage:
        return ReadMessage(message, self._loop, _HINT)


def _noted(error: Exception, message: ReceivedMessage[Any]) -> Exception:
    error.add_note(
        f"The replay stopped at offset {message.offset} of partition {message.partition} of topic '{message.topic}'."
    )
    return error
