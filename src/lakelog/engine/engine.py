"""The engine of one process: its operations over a catalog and the partition stores of all cells.

Each server and each embedded client has one engine. A kill loses only caches, batches being committed, and waiters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lakelog.engine.auditing import AuditTrail
from lakelog.engine.budget import Budget
from lakelog.engine.cell_caches import CellCaches
from lakelog.engine.cells import Cells
from lakelog.engine.changes import Changes
from lakelog.engine.clock import Clock
from lakelog.engine.groups.activity import GroupActivity
from lakelog.engine.groups.clusters import Clusters
from lakelog.engine.groups.dead_letter_expiry import DeadLetterExpiry
from lakelog.engine.groups.dead_letters import DeadLetters, ReadResources
from lakelog.engine.groups.figures import FigureReader
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.groups import Groups
from lakelog.engine.groups.members import Members
from lakelog.engine.groups.progress import ProgressReader
from lakelog.engine.groups.stories import Stories
from lakelog.engine.groups.summaries import Summaries
from lakelog.engine.history.samples import Sampler
from lakelog.engine.history.timeline import Timeline
from lakelog.engine.lake.iceberg import IcebergTables
from lakelog.engine.lake.loads import Loads
from lakelog.engine.lake.pipelines import Pipelines
from lakelog.engine.lake.plans import Lake
from lakelog.engine.lake.writes import Writes
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.engine.leasing.exclusions import FilterEvaluator
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.leasing.leases import Leases
from lakelog.engine.leasing.matching import LeasingContext
from lakelog.engine.log.columns import ColumnPublisher
from lakelog.engine.log.committer import Committer
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.fetch import Fetcher
from lakelog.engine.log.losses import Losses
from lakelog.engine.log.publish import Publisher
from lakelog.engine.log.reserver import Reserver
from lakelog.engine.log.scheduled_delivery import ScheduledDelivery
from lakelog.engine.log.scheduler import Scheduler
from lakelog.engine.log.schemas import Schemas
from lakelog.engine.log.threads import Threads
from lakelog.engine.log.topics import Topics
from lakelog.engine.log.validators import Validators
from lakelog.engine.marks import Marks
from lakelog.engine.outbox.positions import MessagePositions
from lakelog.engine.outbox.rejected import RejectedMessages
from lakelog.engine.outbox.relay import OutboxRelay, RelayContext
from lakelog.engine.tokens import Tokens
from lakelog.storage.outbox import OutboxSource
from lakelog.storage.store import Catalog, PartitionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of an engine."""

    memory_bytes: int = 256 << 20
    object_store: str | None = None
    """The URL of the object store that holds cold segments; the same for all processes of an installation."""
    logs_groups: bool = False
    """True to log events in groups: joins, expired leases, dead letters."""
    clock: Callable[[], Clock] = Clock
    """Makes the clock of a cell. Tests with a manual clock give an `ExactClock`."""


class Engine:
    """The engine. Call `start` first and `close` last.

    Its operations on the log are `topics`, `schemas`, `publisher`, `scheduler`, `columns`, `fetcher`, `lake`,
    `loads` and `writes`. Its operations on groups are `leases`, `members`, `groups` and `dead_letters`.
    """

    def __init__(
        self, catalog: Catalog, cells: dict[int, PartitionStore], settings: EngineSettings | None = None
    ) -> None:
        self.settings = settings or EngineSettings()
        self.catalog = catalog
        self.cells = cells = Cells(cells)
        self.budget = Budget(self.settings.memory_bytes)
        self.extents = Extents(cells, self.settings.object_store)
        self._changes = changes = Changes(cells, lambda: catalog.level)
        self.waiters = changes.waiters
        evaluator = FilterEvaluator()
        self._batch_cache = BatchCache(self.extents, evaluator)
        changes.add_partition_cache(self._batch_cache.grew)
        self.losses = Losses(cells)
        self._committers = {
            cell: Committer(
                store,
                changes.announcers[cell].grew,
                self._batch_cache.appended,
                partial(self.losses.acked, cell),
                self.settings.clock(),
            )
            for cell, store in cells.items()
        }
        reservers = {
            (cell, durable): Reserver(store, durable=durable)
            for cell, store in cells.items()
            for durable in (True, False)
        }
        self.topics = Topics(catalog, cells, changes)
        self.threads = Threads()
        self.scheduled_delivery = ScheduledDelivery(catalog, cells, self.threads, self._wrote)
        self.scheduler = Scheduler(self.topics, cells, lambda: catalog.level, self.scheduled_delivery.wake)
        self._validators = validators = Validators(catalog, self.threads)
        self.schemas = Schemas(catalog, self.topics, self.threads)
        self.publisher = Publisher(self.topics, self._committers, reservers, self.scheduler, validators)
        self.columns = ColumnPublisher(self.publisher, self.topics, self.threads)
        self.fetcher = Fetcher(self.topics, self.extents, self.waiters)
        self.lake = Lake(catalog, self.topics, self.extents, self.waiters)
        self.loads = Loads(catalog, self.topics, self.extents, self._wrote)
        self.iceberg = IcebergTables(catalog, self.topics, self.extents)
        self.pipelines = Pipelines(catalog, self.topics)
        self.tokens = Tokens(catalog)
        self.audit = AuditTrail(catalog)
        self.marks = Marks(catalog)
        self.rejected = RejectedMessages(catalog, self.publisher)
        self.message_positions = MessagePositions(catalog, cells)
        self.writes = Writes(catalog, cells, self.topics, validators, self.threads, self._wrote)
        # Groups, from what the lease path needs up to the operations on groups.
        clocks = {cell: self.settings.clock() for cell in cells}
        self._activity = GroupActivity() if self.settings.logs_groups else None
        self._journals = Journals(cells, self._batch_cache, clocks, self.waiters, self._activity)
        self.group_directory = GroupDirectory(catalog, self.extents, self.topics, self._journals, changes)
        self.members = Members(self.group_directory, self.topics, cells, changes, self._activity)
        progress, summaries = ProgressReader(self.extents, self._journals), Summaries(cells)
        self.timeline = Timeline(catalog, cells, self.group_directory)
        self.groups = Groups(
            catalog, self.group_directory, self.topics, self.members, progress, summaries, self.timeline
        )
        self.figures = FigureReader(catalog, self.members, progress, summaries)
        self.sampler = Sampler(catalog, cells, self.figures)
        context = LeasingContext(
            journals=self._journals,
            batch_cache=self._batch_cache,
            changes=changes,
            clocks=clocks,
            catalog=catalog,
            cells=cells,
        )
        self.leases = Leases(context, self.topics, self.group_directory, self.members)
        resources = ReadResources(budget=self.budget, evaluator=evaluator, validators=validators)
        self.dead_letters = DeadLetters(catalog, cells, self.topics, self.group_directory, self._wrote, resources)
        self.clusters = Clusters(catalog, cells, self.topics, self.group_directory)
        self.stories = Stories(catalog, self.topics, self.extents, self.message_positions)
        self.dead_letter_expiry = DeadLetterExpiry(catalog, cells)
        self.caches = CellCaches(
            self.losses.replaced,
            self.topics.drop,
            self.extents.drop,
            self._batch_cache.drop,
            lambda cell: self._committers[cell].drop(),
            self.scheduled_delivery.drop,
            self.groups.drop,
            self.members.drop,
            self._journals.drop,
            self.leases.drop,
        )
        for cell, store in cells.items():
            store.on_replaced(partial(self.caches.drop, cell))

    def _wrote(self, cell: int, pid: int, first: int, count: int) -> None:
        """Announce messages that were appended other than by a publish."""
        self.losses.acked(cell, pid, first, count)
        self._changes.partition_moved(cell, pid)

    def outbox_relay(self, source: OutboxSource) -> OutboxRelay:
        """Return a relay that moves the messages of an outbox to this log."""
        context = RelayContext(
            catalog=self.catalog,
            cells=self.cells,
            topics=self.topics,
            publisher=self.publisher,
            validators=self._validators,
            wrote=self._wrote,
        )
        return OutboxRelay(source, context)

    async def start(self) -> None:
        """Start to exchange notifications with other processes."""
        self._changes.start()

    async def close(self) -> None:
        """Finish the running commits, then close the stores."""
        self.leases.close()
        self.fetcher.close()
        await self.members.close()
        await self._journals.drain()
        if self._activity is not None:
            self._activity.flush()
        for committer in self._committers.values():
            await committer.drain()
        await self.losses.close()
        await self._changes.stop()
        await self.extents.close()
        for store in self.cells.values():
            await store.close()
        await self.catalog.close()
