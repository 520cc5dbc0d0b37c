"""The announcements of a store in memory, as its readers receive them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from weakref import WeakKeyDictionary


class Listener:
    """A reader of announcements. Announcements that arrive between two reads are kept as one set."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._told = asyncio.Event()

    def tell(self, numbers: Collection[int]) -> None:
        self._numbers.update(numbers)
        self._told.set()

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> set[int]:
        await self._told.wait()
        self._told.clear()
        numbers, self._numbers = self._numbers, set()
        return numbers


class MemoryAnnouncements:
    """The announcements of a `MemoryStore`."""

    def __init__(self) -> None:
        # Weak references, because an abandoned iterator is not closed. A dict keeps their order.
        self._listeners: WeakKeyDictionary[Listener, None] = WeakKeyDictionary()

    @property
    def senders(self) -> int:
        return 0

    @property
    def is_listening(self) -> bool:
        return bool(self._listeners)

    async def announce(self, numbers: Collection[int]) -> None:
        await asyncio.sleep(0)
        for listener in self._listeners:
            listener.tell(numbers)

    def announcements(self) -> AsyncIterator[set[int]]:
        listener = Listener()
        self._listeners[listener] = None
        return listener
