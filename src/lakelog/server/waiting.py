"""Long polls, and the two events that end them early: a drain and a disconnect. The caller decides what to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from lakelog.server.calls import Call, Disconnected
from lakelog.server.drain import Drain

Found = TypeVar("Found")


async def unless_ended(
    call: Call, drain: Drain, work: Coroutine[Any, Any, Found], late: Callable[[Found], Awaitable[None]] | None = None
) -> Found | None:
    """Return the result of `work`; None if the server drains first. Raise `Disconnected` if the caller disconnects.

    `late` gets a result that can no longer be sent to the caller, because cancelled work may still finish.
    """
    poll = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(call.gone())
    drained = asyncio.ensure_future(drain.wait())
    told = False
    try:
        await asyncio.wait((poll, gone, drained), return_when=asyncio.FIRST_COMPLETED)
        if poll.done() and not gone.done():
            told = True
            return poll.result()
        if gone.done():
            raise Disconnected
        return None
    finally:
        for task in (poll, gone, drained):
            task.cancel()
        await asyncio.gather(poll, gone, drained, return_exceptions=True)
        if late is not None and not told and not poll.cancelled() and poll.exception() is None:
            await late(poll.result())
