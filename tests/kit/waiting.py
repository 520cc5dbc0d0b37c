"""Waits for a condition with a time limit, instead of sleeping. It hides no error that the condition raises."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class NeverTrue(AssertionError):
    """The condition did not become true within its time limit."""


def eventually(condition: Callable[[], T], *, within: float = 20.0, every: float = 0.02, what: str = "") -> T:
    """Poll until the condition returns a true value, and return it."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise NeverTrue(_explain(condition, within, value, what))
        time.sleep(every)


async def eventually_async(
    condition: Callable[[], T | Awaitable[T]], *, within: float = 20.0, every: float = 0.02, what: str = ""
) -> T:
    """Like `eventually`, without blocking the event loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        result = condition()
        value: T = await result if inspect.isawaitable(result) else result
        if value:
            return value
        if time.monotonic() >= deadline:
            raise NeverTrue(_explain(condition, within, value, what))
        await asyncio.sleep(every)


def _explain(condition: Callable[[], object], within: float, value: object, what: str) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"not true within {within:g} s: {name} (last answer: {value!r})"
