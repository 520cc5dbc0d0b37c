"""Retries calls with growing pauses, within a time limit, and only if a repeat is safe."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from lakelog.client._async.transport import AsyncTransport
from lakelog.client._runtime import async_sleep
from lakelog.client.retrying import Attempts, CallRetryPolicy, Outage, RetryRule, is_outage
from lakelog.errors import Closed, LakelogError
from lakelog.model.structs import Request, checked
from lakelog.wire.operations.operation import Operation

Asked = TypeVar("Asked", bound=Request)
Found = TypeVar("Found")


class AsyncFinishable(Protocol):
    """An object that is closed with its client, such as a producer."""

    async def finish(self, seconds: float) -> None: ...


class AsyncCalls:
    """Makes the calls of one client: a transport with its retry policy, until the client is closed."""

    def __init__(self, transport: AsyncTransport, policy: CallRetryPolicy, place: str = "") -> None:
        self._transport = transport
        self.place = place
        """The URL for display, without any secret."""
        self._closed = False
        self.policy = policy
        self.producers: set[AsyncFinishable] = set()
        self._outage = Outage()

    @property
    def transport(self) -> AsyncTransport:
        self.check_open()
        return self._transport

    def redirect(self, transport: AsyncTransport) -> AsyncTransport:
        """Use another transport from now on. Return the former one."""
        former, self._transport = self._transport, transport
        return former

    def check_open(self) -> None:
        """Raise `Closed` after `close`: the transport would open new connections that are never closed."""
        if self._closed:
            raise Closed("This client is closed. Call lakelog.connect() again.")

    async def close(self, seconds: float) -> None:
        """Let producers publish their messages for at most that many seconds, then close the transport."""
        deadline = time.monotonic() + seconds
        for producer in list(self.producers):
            await producer.finish(max(0.0, deadline - time.monotonic()))
        self._closed = True
        await self._transport.close()

    async def run(self, call: Callable[[float], Awaitable[Found]], *, safe: bool, wait_seconds: float = 0.0) -> Found:
        """Run `call`, which receives its time limit in seconds. If `safe`, repeat it after an unknown outcome."""
        attempts = Attempts(self.policy, limit_seconds=self.policy.limit_seconds + wait_seconds)
        rule = RetryRule(is_repeatable=safe)
        while True:
            try:
                found = await call(attempts.seconds(wait_seconds))
            except LakelogError as error:
                if rule.allows(error) and await self.pause(attempts, error):
                    continue
                if (final := rule.final(error)) is not error:
                    raise final from error
                raise
            self.worked(attempts)
            return found

    async def call(
        self,
        operation: Operation[Asked, Found],
        request: Asked,
        *,
        wait_seconds: float = 0.0,
        is_repeatable: bool | None = None,
    ) -> Found:
        """Run an operation of the table, and return its reply. The table says whether it may be repeated.

        Args:
            operation: The operation.
            request: The request. One that breaks a limit raises `InvalidRequest`, over HTTP and embedded.
            wait_seconds: How long the server may wait before it replies, because the request asks it to.
            is_repeatable: Whether this call may be repeated, if that depends on the request.
        """
        asked = checked(request)
        safe = operation.is_repeatable if is_repeatable is None else is_repeatable
        transport = self.transport
        return await self.run(lambda left: transport.call(operation, asked, left), safe=safe, wait_seconds=wait_seconds)

    async def pause(self, attempts: Attempts, error: LakelogError) -> bool:
        """Wait until the next attempt. Return False immediately if no time is left for one."""
        seconds = attempts.pause(error)
        if seconds is None or self._closed:
            self._outage.given_up()
            return False
        if is_outage(error):
            self._outage.failed(error, attempts.left)
        await async_sleep(seconds)
        return True

    def worked(self, attempts: Attempts) -> None:
        """Record that a call succeeded, so that the end of an outage is logged."""
        if attempts.failed:
            self._outage.ended()
