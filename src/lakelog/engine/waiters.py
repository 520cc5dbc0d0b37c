"""Wakes waiters when a partition grows or a group changes, in this process and, by announcements, in others.

A wake-up between processes may be lost, so waiters also check from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lakelog.errors import LakelogError
from lakelog.storage.store import PartitionStore

_ANNOUNCE_AFTER_SECONDS = 0.001
_ANNOUNCE_UNDER_LOAD_SECONDS = 0.005
"""The shortest time between announcements under load. A NOTIFY for each commit would serialize all commits.

It is multiplied by the number of other processes that announce: each process hears all of them, so the work of all
processes would grow with the square of their number.
"""
_LONGEST_PAUSE_SECONDS = 0.1

_AGAIN_SECONDS = 0.1
"""The time before an announcement that failed is sent again."""

_log = logging.getLogger(__name__)


Key = TypeVar("Key", int, tuple[int, int])
"""The key of waiters: a partition id, a negated group id, or the group id and partition id of a journal."""


class Waiters:
    """The consumers, readers and dispatchers of this process that wait for a change."""

    def __init__(self) -> None:
        # Dicts serve as ordered sets: the first to wait is woken first, in every run.
        self._waiting: defaultdict[int, dict[asyncio.Event, None]] = defaultdict(dict)
        self._watching: defaultdict[Any, list[Callable[[Any], None]]] = defaultdict(list)

    @contextmanager
    def waiting(self, number: int) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the partition grows.

        Enter the context before reading, or a wake-up may be missed.
        """
        event = asyncio.Event()
        self._waiting[number][event] = None
        try:
            yield event
        finally:
            events = self._waiting[number]
            events.pop(event, None)
            if not events:
                del self._waiting[number]

    def watch(self, key: Key, call: Callable[[Key], None]) -> None:
        """Call back each time the partition grows, or the group or the journal changes, until `unwatch`."""
        self._watching[key].append(call)

    def unwatch(self, key: Key, call: Callable[[Key], None]) -> None:
        calls = self._watching.get(key, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            self._watching.pop(key, None)

    def is_watched(self, key: Key) -> bool:
        return key in self._watching

    def wake(self, key: Key) -> None:
        """Set the events and call the callbacks of the partition, group or journal."""
        if isinstance(key, int):
            for event in self._waiting.get(key, ()):
                event.set()
        for call in list(self._watching.get(key, ())):
            call(key)

    def wake_all(self) -> None:
        """Wake all waiters for partitions and groups. Journals change only in this process."""
        for key in {*self._waiting, *self._watching}:
            if isinstance(key, int):
                self.wake(key)


class Announcer:
    """Exchanges wake-ups with other processes over one cell."""

    def __init__(
        self, store: PartitionStore, waiters: Waiters, heard: Callable[[int | None], None] | None = None
    ) -> None:
        """Create the announcer.

        `heard` is called with the number that another process announced; None means that any of them may have changed.
        """
        self._store = store
        self._waiters = waiters
        self._heard = heard or (lambda _: None)
        self._grown: set[int] = set()
        self._tell = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._listen())]

    def grew(self, pid: int) -> None:
        self._waiters.wake(pid)
        self._grown.add(pid)
        self._tell.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self) -> None:
        pause = _ANNOUNCE_AFTER_SECONDS
        while True:
            longest = min(_ANNOUNCE_UNDER_LOAD_SECONDS * max(1, self._store.senders), _LONGEST_PAUSE_SECONDS)
            pause = min(2 * pause, longest) if self._tell.is_set() else _ANNOUNCE_AFTER_SECONDS
            await self._tell.wait()
            self._tell.clear()
            grown, self._grown = self._grown, set()
            try:
                await self._store.announce(grown)
            except LakelogError as error:
                # Caches of other processes rely on it.
                _log.debug("announcement delayed: %s", error)
                self._grown |= grown
                self._tell.set()
                pause = _AGAIN_SECONDS
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        async for grown in self._store.announcements():
            if grown:
                for number in grown:
                    self._heard(number)
                    self._waiters.wake(number)
            else:
                self._heard(None)
                self._waiters.wake_all()
