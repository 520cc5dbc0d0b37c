"""The engine of one process: its verbs over a catalog and the partition stores of all cells.

Servers and the embedded client hold one each. No state lives here that a kill could lose: caches, batches on their
way, and who waits for what.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lakelog.engine.budget import Budget
from lakelog.engine.cell_caches import CellCaches
from lakelog.engine.clock import Clock
from lakelog.engine.groups.activity import GroupActivity
from lakelog.engine.groups.dead_letters import DeadLetters
from lakelog.engine.groups.groups import Groups
from lakelog.engine.groups.members import Members
from lakelog.engine.lake.pipelines import Pipelines
from lakelog.engine.lake.plans import Lake
from lakelog.engine.lake.writes import Writes
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.leasing.leases import Leases
from lakelog.engine.leasing.matching import LeasingContext
from lakelog.engine.log.columns import ColumnPublisher, Threads
from lakelog.engine.log.committer import Committer
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.fetch import Fetcher
from lakelog.engine.log.publish import Publisher
from lakelog.engine.log.reserver import Reserver
from lakelog.engine.log.topics import Topics
from lakelog.engine.waiters import Announcer, Waiters
from lakelog.storage.store import Catalog, PartitionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine may use."""

    memory_bytes: int = 256 << 20
    object_store: str | None = None
    """The URL of the object store that holds cold segments; the same for all processes of an installation."""
    logs_groups: bool = False
    """Whether to log what happens in groups: joins, expired leases, dead letters."""


class Engine:
    """The verbs: `topics`, `publisher`, `columns`, `fetcher`, `lake`, `writes`.

    Of groups `leases`, `members`, `groups`, `dead_letters`. `start` before, `close` after.
    """

    def __init__(
        self, catalog: Catalog, cells: dict[int, PartitionStore], settings: EngineSettings | None = None
    ) -> None:
        self.settings = settings or EngineSettings()
        self.catalog = catalog
        self.cells = cells
        self.budget = Budget(self.settings.memory_bytes)
        self.waiters = Waiters()
        self.extents = Extents(cells, self.settings.object_store)
        self._batch_cache = BatchCache(self.extents)
        self._announcers = {cell: Announcer(store, self.waiters, self._heard) for cell, store in cells.items()}
        self._committers = {
            cell: Committer(store, self._announcers[cell].grew, self._batch_cache.appended)
            for cell, store in cells.items()
        }
        reservers = {
            (cell, durable): Reserver(store, durable=durable)
            for cell, store in cells.items()
            for durable in (True, False)
        }
        self.topics = Topics(catalog, cells, self._moved)
        self.publisher = Publisher(self.topics, self._committers, reservers)
        self.threads = Threads()
        self.columns = ColumnPublisher(self.publisher, self.topics, self.threads)
        self.fetcher = Fetcher(self.topics, self.extents, self.waiters)
        self.lake = Lake(catalog, self.topics, self.extents, self.waiters)
        self.pipelines = Pipelines(catalog, self.topics)
        self.writes = Writes(catalog, cells, self.topics, self._moved)
        self._begin_groups()
        self.caches = CellCaches(
            self.topics.drop,
            self.extents.drop,
            self._batch_cache.drop,
            lambda cell: self._committers[cell].drop(),
            self.groups.drop,
            self.members.drop,
            self._journals.drop,
        )

    def _begin_groups(self) -> None:
        cells = self.cells
        batch_cache = self._batch_cache
        clocks = {cell: Clock() for cell in cells}
        self._activity = GroupActivity() if self.settings.logs_groups else None
        self._journals = Journals(cells, batch_cache, clocks, self._activity)
        self.groups = Groups(self.catalog, self.extents, self.topics, self._group_changed)
        self.members = Members(self.groups, self.topics, cells, self.waiters, self._group_changed, self._activity)
        self.groups.journals, self.groups.members = self._journals, self.members
        room = LeasingContext(journals=self._journals, batch_cache=batch_cache, waiters=self.waiters, clocks=clocks)
        self.leases = Leases(room, self.topics, self.groups, self.members)
        grew = {cell: partial(self._moved, cell) for cell in cells}
        self.dead_letters = DeadLetters(self.catalog, cells, self.topics, self.groups, grew)

    def _group_changed(self, group_id: int) -> None:
        """Tells everybody, in this process and in others."""
        self.groups.forget(group_id)
        for announcer in self._announcers.values():
            announcer.grew(-group_id)

    def _moved(self, cell: int, pid: int) -> None:
        """A partition's log begins or ends elsewhere, other than by a publish."""
        self._batch_cache.grew(pid)
        self._announcers[cell].grew(pid)

    def _heard(self, number: int | None) -> None:
        """Another process said that a partition grew or a group changed; None: any may have."""
        if number is None:
            self._batch_cache.grew_all()
            self.groups.forget_all()
        elif number < 0:
            self.groups.forget(-number)
        else:
            self._batch_cache.grew(number)

    async def start(self) -> None:
        for announcer in self._announcers.values():
            announcer.start()

    async def close(self) -> None:
        """Finishes the commits on their way, then lets go of the stores."""
        self.leases.close()
        await self.members.close()
        await self._journals.drain()
        if self._activity is not None:
            self._activity.flush()
        for committer in self._committers.values():
            await committer.drain()
        for announcer in self._announcers.values():
            await announcer.stop()
        await self.extents.close()
        for store in self.cells.values():
            await store.close()
        await self.catalog.close()
