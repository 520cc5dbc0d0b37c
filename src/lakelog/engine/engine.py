"""The engine of one process: its verbs over a catalog and the partition stores of all cells.

Servers and the embedded client hold one each. No state lives here that a kill could lose: caches, batches on their
way, and who waits for what.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.engine.budget import Budget
from lakelog.engine.columns import ColumnPublisher, Threads
from lakelog.engine.committer import Committer
from lakelog.engine.fetch import Fetcher
from lakelog.engine.publish import Publisher
from lakelog.engine.reserver import Reserver
from lakelog.engine.topics import Topics
from lakelog.engine.waiters import Announcer, Waiters
from lakelog.storage.store import Catalog, PartitionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine may use."""

    memory_bytes: int = 256 << 20


class Engine:
    """`topics`, `publisher`, `columns` and `fetcher` are the verbs; `start` before, `close` after."""

    def __init__(
        self, catalog: Catalog, cells: dict[int, PartitionStore], settings: EngineSettings | None = None
    ) -> None:
        self.settings = settings or EngineSettings()
        self.catalog = catalog
        self.cells = cells
        self.budget = Budget(self.settings.memory_bytes)
        self.waiters = Waiters()
        self._announcers = {cell: Announcer(store, self.waiters) for cell, store in cells.items()}
        self._committers = {cell: Committer(store, self._announcers[cell].grew) for cell, store in cells.items()}
        reservers = {
            (cell, durable): Reserver(store, durable=durable)
            for cell, store in cells.items()
            for durable in (True, False)
        }
        self.topics = Topics(catalog, cells)
        self.publisher = Publisher(self.topics, self._committers, reservers)
        self.threads = Threads()
        self.columns = ColumnPublisher(self.publisher, self.topics, self.threads)
        self.fetcher = Fetcher(self.topics, cells, self.waiters)

    async def start(self) -> None:
        for announcer in self._announcers.values():
            announcer.start()

    async def close(self) -> None:
        """Finishes the commits on their way, then lets go of the stores."""
        for committer in self._committers.values():
            await committer.drain()
        for announcer in self._announcers.values():
            await announcer.stop()
        for store in self.cells.values():
            await store.close()
        await self.catalog.close()
