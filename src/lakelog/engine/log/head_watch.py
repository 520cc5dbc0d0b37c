"""Watches the partitions that readers wait for: one query per cell and second, however many readers wait.

Announcements of other processes are faster, but may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakelog.engine.waiters import Waiters
from lakelog.errors import LakelogError
from lakelog.storage.store import Head, PartitionStore

WATCH_SECONDS = 1.0
"""How often the heads are read for changes that were not announced."""
_HEADS_AT_ONCE = 5_000

_Known = tuple[int, int, int]


class HeadWatch:
    """The watch of one engine. It runs while readers wait."""

    def __init__(self, cells: Mapping[int, PartitionStore], waiters: Waiters) -> None:
        self._cells = cells
        self._waiters = waiters
        self._readers: dict[int, dict[int, int]] = {}
        """The number of waiting readers, by cell and partition."""
        self._known: dict[int, _Known] = {}
        self._looks: dict[int, asyncio.Task[None]] = {}
        """The running watch of each cell. A cell that does not respond delays no other cell."""

    @contextmanager
    def watching(self, cell: int, head: Head) -> Iterator[None]:
        """Wake the waiters of the partition when its head differs from this one."""
        readers = self._readers.setdefault(cell, {})
        readers[head.pid] = readers.get(head.pid, 0) + 1
        self._known.setdefault(head.pid, _state(head))
        if cell not in self._looks or self._looks[cell].done():
            self._looks[cell] = asyncio.create_task(self._run(cell))
        try:
            yield
        finally:
            readers[head.pid] -= 1
            if not readers[head.pid]:
                del readers[head.pid]
                self._known.pop(head.pid, None)

    def close(self) -> None:
        for task in self._looks.values():
            task.cancel()

    async def _run(self, cell: int) -> None:
        while self._readers[cell]:
            await asyncio.sleep(WATCH_SECONDS)
            pids = list(self._readers[cell])
            for first in range(0, len(pids), _HEADS_AT_ONCE):
                # Readers see the error of a cell that is down when they read again.
                with contextlib.suppress(LakelogError):
                    await self._look(cell, pids[first : first + _HEADS_AT_ONCE])

    async def _look(self, cell: int, pids: list[int]) -> None:
        found = {head.pid: _state(head) for head in await self._cells[cell].heads_read(pids)}
        for pid in pids:
            # A partition without a head is gone, and its readers find out why.
            if pid in self._known and found.get(pid) != self._known[pid]:
                if pid in found:
                    self._known[pid] = found[pid]
                self._waiters.wake(pid)


def _state(head: Head) -> _Known:
    return head.log_start, head.next_offset, head.state
