"""The coalescing pump: what arrives together or during a call shares the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from lakelog.engine.coalescing import CoalescingPump


class Calls:
    """Numbers that wait, the calls that took them, and a gate that holds running calls."""

    def __init__(self, limit: int = 1, most: int = 100) -> None:
        self.pump = CoalescingPump(self._take, limit)
        self.gate = asyncio.Event()
        self.calls: list[list[int]] = []
        self._most = most
        self._waiting: list[int] = []

    def add(self, *numbers: int) -> None:
        self._waiting.extend(numbers)
        self.pump.wake()

    def _take(self) -> Coroutine[object, object, None] | None:
        taken, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        return self._call(taken) if taken else None

    async def _call(self, taken: list[int]) -> None:
        self.calls.append(taken)
        await self.gate.wait()
        if 13 in taken:
            raise ValueError(taken)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_requests_that_arrive_together_share_the_first_call() -> None:
    its = Calls()
    its.add(1)
    its.add(2)
    assert its.calls == [] and not its.pump.is_idle
    await turns()
    assert its.calls == [[1, 2]]
    its.gate.set()
    await its.pump.drain()
    assert its.pump.is_idle


async def test_requests_that_arrive_during_a_call_form_the_next_one() -> None:
    its = Calls()
    its.add(1)
    await turns()
    its.add(2)
    await turns()
    its.add(3)
    await turns()
    assert its.calls == [[1]]
    its.gate.set()
    await its.pump.drain()
    assert its.calls == [[1], [2, 3]]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_at_most_limit_calls_run_at_a_time(limit: int) -> None:
    its = Calls(limit, most=1)
    its.add(1, 2, 3, 4)
    await turns()
    assert its.calls == [[number] for number in range(1, limit + 1)] and len(its.pump.tasks) == limit
    its.gate.set()
    await its.pump.drain()
    assert its.calls == [[1], [2], [3], [4]]


async def test_a_call_that_fails_frees_its_slot() -> None:
    its = Calls()
    its.add(13)
    await turns()
    (failing,) = its.pump.tasks
    its.add(2)
    its.gate.set()
    await its.pump.drain()
    assert its.calls == [[13], [2]]
    assert isinstance(failing.exception(), ValueError)


async def test_a_wake_without_work_starts_nothing() -> None:
    its = Calls()
    its.pump.wake()
    await its.pump.drain()
    assert its.calls == [] and its.pump.is_idle
