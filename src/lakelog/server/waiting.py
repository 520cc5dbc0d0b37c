"""Long polls, and the events that end them early: a drain, a disconnect and the end of the caller's token.

The caller decides what to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from lakelog.errors import NotAuthenticated
from lakelog.server.calls import Call, Disconnected
from lakelog.server.drain import Drain

Found = TypeVar("Found")


async def unless_ended(
    call: Call, drain: Drain, work: Coroutine[Any, Any, Found], late: Callable[[Found], Awaitable[None]] | None = None
) -> Found | None:
    """Return the result of `work`; None if the server drains first. Raise `Disconnected` if the caller disconnects.

    Raise `NotAuthenticated` if the caller's token is revoked or expires first.
    `late` gets a result that can no longer be sent to the caller, because cancelled work may still finish.
    """
    poll = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(call.gone())
    drained = asyncio.ensure_future(drain.wait())
    ended = call.watch_token()
    told = False
    try:
        events = (poll, gone, drained) if ended is None else (poll, gone, drained, ended)
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise Disconnected
        if ended is not None and ended.done():
            raise NotAuthenticated("The token was revoked or has expired while the call waited.")
        if not poll.done():
            # Cancelled work may still finish. The caller is there, so the result is for the caller.
            poll.cancel()
            await asyncio.wait([poll])
        if poll.cancelled():
            return None
        told = True
        return poll.result()
    finally:
        for task in (poll, gone, drained):
            task.cancel()
        await asyncio.gather(poll, gone, drained, return_exceptions=True)
        if late is not None and not told and not poll.cancelled() and poll.exception() is None:
            await late(poll.result())
