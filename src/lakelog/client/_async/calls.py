"""Repeats calls: with growing pauses, within a limit of time, and only where repeating is safe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lakelog.client._async.transport import AsyncTransport
from lakelog.client._runtime import async_sleep
from lakelog.client.backoff import Policy, Tries, is_passing, may_be_written
from lakelog.errors import LakelogError, OutcomeUnknown

Found = TypeVar("Found")


class AsyncCalls:
    """A transport and how patiently it is used."""

    def __init__(self, transport: AsyncTransport, policy: Policy) -> None:
        self.transport = transport
        self.policy = policy

    async def run(self, call: Callable[[float], Awaitable[Found]], *, safe: bool, wait_seconds: float = 0.0) -> Found:
        """`call` gets the seconds it may take. `safe`: it may be repeated although it may have been written."""
        tries = Tries(self.policy, limit_seconds=self.policy.limit_seconds + wait_seconds)
        unknown = False
        while True:
            try:
                return await call(tries.seconds(wait_seconds))
            except LakelogError as error:
                unknown = unknown or may_be_written(error)
                pause = await self.pause(tries, error) if is_passing(error) and (safe or not unknown) else False
                if pause:
                    continue
                if unknown and not may_be_written(error):
                    raise OutcomeUnknown.after(error) from error
                raise

    async def pause(self, tries: Tries, error: LakelogError) -> bool:
        """Whether there is time for another try; then it is time for it."""
        seconds = tries.pause(error)
        if seconds is None:
            return False
        await async_sleep(seconds)
        return True
