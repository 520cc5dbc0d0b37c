"""Calls to several cells at once."""

from __future__ import annotations

import asyncio
import contextlib

from lakelog.engine.groups.positions import gathered


async def test_calls_that_were_cancelled_before_their_turn_leave_no_warning() -> None:
    """A coroutine that is never awaited warns when it is collected, and warnings fail this test."""
    begun: list[int] = []

    async def call(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(60)
        return number

    for turns in (1, 2):
        work = asyncio.create_task(gathered(call(number) for number in range(20)))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    assert begun == list(range(16)), "cancelled once before any call began, and once while the last four waited"
