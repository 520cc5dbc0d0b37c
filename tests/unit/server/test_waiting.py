"""Long polls that end early: the result of work that finishes although it was cancelled."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from lakelog.server.calls import Call, Disconnected
from lakelog.server.drain import Drain
from lakelog.server.waiting import unless_ended


class StubCall:
    def __init__(self) -> None:
        self.hangs_up = asyncio.Event()

    async def gone(self) -> None:
        await self.hangs_up.wait()

    def watch_token(self) -> None:
        return None


async def finishes() -> str:
    """Return a result although it is cancelled, like a lease whose commit is under way."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "leases"
    return ""


async def late(found: str) -> None:
    raise AssertionError("the caller is still there")


async def test_a_result_that_comes_during_the_drain_goes_to_the_caller() -> None:
    """A response without it would say that nothing was leased."""
    drain = Drain()
    poll = asyncio.create_task(unless_ended(cast(Call, StubCall()), drain, finishes(), late))
    await asyncio.sleep(0)
    drain.begin()
    assert await poll == "leases"


async def test_work_that_ends_without_a_result_is_nothing_during_the_drain() -> None:
    drain = Drain()
    poll = asyncio.create_task(unless_ended(cast(Call, StubCall()), drain, asyncio.Event().wait()))
    await asyncio.sleep(0)
    drain.begin()
    assert await poll is None


async def test_a_result_for_a_caller_that_hung_up_is_late() -> None:
    call, found = StubCall(), list[str]()

    async def note(result: str) -> None:
        found.append(result)

    poll = asyncio.create_task(unless_ended(cast(Call, call), Drain(), finishes(), note))
    await asyncio.sleep(0)
    call.hangs_up.set()
    with pytest.raises(Disconnected):
        await poll
    assert found == ["leases"]
