"""Watches what the consumers of this process wait for: one query per cell and second, and one query of the catalog.

Announcements of other processes are faster, but may be lost. A change that the watcher finds is handled like one that
was announced. The number of queries does not depend on the number of groups, topics and partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

from lakelog.engine.changes import topic_number
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.members import Members
from lakelog.engine.leasing.dispatcher import Dispatcher
from lakelog.engine.leasing.journal import Journal
from lakelog.engine.leasing.matching import LeasingContext
from lakelog.engine.log.topics import Topics
from lakelog.errors import LakelogError
from lakelog.storage.changes import ChangedRows, KnownRows, KnownVersions

WATCH_SECONDS = 1.0
"""How often the store is read for changes that were not announced."""
_CATALOG = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCaches:
    """The caches whose values the watcher confirms, so that they are not read again one by one."""

    topics: Topics
    directory: GroupDirectory
    members: Members


class Watcher:
    """The watcher of one engine. It runs while consumers wait."""

    def __init__(
        self, context: LeasingContext, dispatchers: Mapping[tuple[int, int], Dispatcher], caches: WatchedCaches
    ) -> None:
        """`dispatchers` are all dispatchers of the engine. They may change at any time."""
        self._context = context
        self._dispatchers = dispatchers
        self._caches = caches
        self._running: asyncio.Task[None] | None = None
        self._reading: dict[int, asyncio.Task[None]] = {}
        """The running read of each cell. A cell that does not respond delays no other cell."""
        self._ends: dict[int, dict[int, tuple[int, int]]] = {}
        """By cell and partition: log start and next offset when they were last read."""

    def wake(self) -> None:
        """Begin to watch, because a consumer waits."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())

    def drop(self, cell: int) -> None:
        """Forget what was read of the cell, because its data was replaced."""
        self._ends.pop(cell, None)

    def close(self) -> None:
        for task in (self._running, *self._reading.values()):
            if task is not None:
                task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            watched = [each for each in self._dispatchers.values() if each.has_waiting]
            if not watched:
                return
            self._start(_CATALOG, self._read_catalog(watched))
            for cell in self._context.cells:
                self._start(cell, self._look(cell, watched))

    def _start(self, cell: int, work: Coroutine[object, object, None]) -> None:
        if cell in self._reading and not self._reading[cell].done():
            work.close()
        else:
            self._reading[cell] = asyncio.get_running_loop().create_task(work)

    async def _look(self, cell: int, watched: Sequence[Dispatcher]) -> None:
        if not self._context.journals.is_unresponsive(cell):
            with contextlib.suppress(LakelogError):
                await self._read_cell(cell, watched)
        # Even after an error: a retry may be due, or the cell may respond again.
        for dispatcher in watched:
            if cell in dispatcher.topic.slot_cells:
                dispatcher.look_again()

    async def _read_cell(self, cell: int, watched: Sequence[Dispatcher]) -> None:
        began, loop_time = time.monotonic(), asyncio.get_running_loop().time()
        members = self._caches.members.versions(each.group for each in watched if each.group.cell == cell)
        views = [view for dispatcher in watched for view in dispatcher.views if view.journal.cell == cell]
        journals = {
            view.journal.key: view.journal
            for view in views
            if view.journal.is_cached and view.journal.seen_at < began - WATCH_SECONDS / 2
        }
        before = {key: _row(journal) for key, journal in journals.items()}
        known = self._ends.get(cell, {})
        ends = self._ends[cell] = {view.journal.pid: known.get(view.journal.pid, (0, 0)) for view in views}
        rows = KnownRows(
            heads=dict(ends),
            journals={key: (version, nonce) for key, (version, nonce, _) in before.items()},
            members=members,
        )
        found = await self._context.journals.awaiting(cell, self._context.cells[cell].changes_read(rows))
        self._context.clocks[cell].heard(found.clock_ms)
        self._note_heads(ends, found)
        for group_id, version in members.items():
            if group_id in found.members:
                self._context.changes.heard(-group_id)
            else:
                self._caches.members.confirm(group_id, version, loop_time)
        for key, journal in journals.items():
            if key not in found.journals and _row(journal) == before[key]:
                journal.seen_at = max(journal.seen_at, began)
        await self._context.journals.refresh([journals[key] for key in found.journals])

    def _note_heads(self, ends: dict[int, tuple[int, int]], found: ChangedRows) -> None:
        for pid, (log_start, next_offset) in found.heads.items():
            ends[pid] = (log_start, next_offset)
            self._context.batch_cache.saw_ends(pid, log_start, next_offset)
            self._context.waiters.wake(pid)

    async def _read_catalog(self, watched: Sequence[Dispatcher]) -> None:
        places = [(each.group, each.topic) for each in watched]
        known = KnownVersions(
            groups={each.group.group_id: each.group.version for each in watched},
            group_topics={(each.group.group_id, each.topic.incarnation): each.group_topic.epoch for each in watched},
            topics={each.topic.incarnation: each.topic.version for each in watched},
        )
        began = time.monotonic()
        try:
            found = await self._context.catalog.groups.versions_read(known)
        except LakelogError:
            return
        for group_id in found.groups:
            self._context.changes.heard(-group_id)
        for incarnation in found.topics:
            self._context.changes.heard(topic_number(incarnation))
        for group, topic in places:
            if group.group_id not in found.groups:
                self._caches.directory.confirm(group, began)
            if topic.incarnation not in found.topics:
                self._caches.topics.confirm(topic, began)


def _row(journal: Journal) -> tuple[int, int, int]:
    """Return what identifies the cached state of a journal."""
    return journal.version, journal.nonce, journal.drops
