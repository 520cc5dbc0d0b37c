"""Topics as Iceberg tables: the difference between a topic and its table, and the commit of a new version.

A pipeline writes the metadata of tables. The row of a table in the catalog names its newest metadata file, and lists
the files that must not be swept.
"""

from __future__ import annotations

from lakelog.engine.groups.positions import gathered
from lakelog.engine.lake.iceberg_steps import steps_of
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics
from lakelog.errors import Conflict, InvalidRequest, NotFound, ObjectNotFound, TopicNotFound
from lakelog.model.iceberg import (
    LATEST_SUFFIX,
    IcebergChanges,
    IcebergChangesRequest,
    IcebergCommit,
    IcebergTable,
    TableKind,
)
from lakelog.model.lake import ORPHAN_AGE
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.segment import Segment
from lakelog.model.topic import Scope, Topic
from lakelog.segments.layout import is_table_file, parse_segment_path, topic_folder
from lakelog.storage.cold import ColdPlanRequest
from lakelog.storage.store import Catalog

_TRIES = 2


class IcebergTables:
    """The tables of all topics; one per engine."""

    def __init__(self, catalog: Catalog, topics: Topics, extents: Extents) -> None:
        self._catalog = catalog
        self._topics = topics
        self._extents = extents

    async def changes(self, scope: Scope, request: IcebergChangesRequest) -> IcebergChanges:
        """Return the snapshots that bring the table to the verified segments of the topic.

        A segment counts from its verification on, so the table is never ahead of the log.
        """
        topic = await self._topics.refresh(scope, request.topic)
        kind = TableKind(request.kind)
        table = await self._catalog.iceberg.table_read(topic.incarnation, kind)
        present = frozenset() if table is None else table.segments
        is_latest = kind is TableKind.LATEST
        steps, rest = ([], 0) if is_latest else steps_of(present, await self._segments(topic))
        return IcebergChanges(
            topic=topic.name,
            incarnation=topic.incarnation,
            environment_id=scope.environment_id,
            store=self._extents.url,
            version=0 if table is None else table.version,
            metadata=None if table is None else table.metadata,
            steps=steps,
            rest=rest,
            now=await self._extents.cells[topic.cells[0]].clock(),
            columns=topic.settings.columns,
        )

    async def commit(self, scope: Scope, request: IcebergCommit) -> IcebergTable:
        """Make a metadata file the newest one of the table; raise `Conflict` if the table has another version."""
        check_level(self._catalog.level, FeatureLevel.FOURTH, "Iceberg tables")
        topic = await self._topics.refresh(scope, request.topic)
        if topic.incarnation != request.incarnation:
            raise TopicNotFound(f"Topic '{topic.name}' was deleted and created again.", topic=topic.name)
        for path in request.added:
            _check_path(topic, path)
        if request.metadata not in request.added:
            raise InvalidRequest(f"`added` lacks the metadata file {request.metadata}.", path=request.metadata)
        # A file that belonged to nothing for half a day may be swept at any moment.
        doomed = await self._catalog.orphans.old(request.added, age=ORPHAN_AGE / 2)
        if doomed or not await self._catalog.iceberg.table_commit(request):
            raise Conflict(
                f"The Iceberg table of topic '{topic.name}' was changed by another run. Run it again.",
                topic=topic.name,
                version=request.version,
            )
        # As for registered segments: the time of an earlier check must not count after a later backup mark.
        await self._catalog.orphans.forget(request.added)
        return IcebergTable(topic=topic.name, kind=request.kind, version=request.version + 1, metadata=request.metadata)

    async def find(self, scope: Scope, name: str) -> IcebergTable:
        """Return a table by its name; raise `NotFound` if there is none."""
        for topic, kind in _tables_named(name):
            for table in await self._catalog.iceberg.table_list(scope, topic=topic):
                if table.kind is kind:
                    return table
        topic, kind = _tables_named(name)[-1]
        pipeline = "latest" if kind is TableKind.LATEST else "iceberg"
        raise NotFound(
            f"Topic '{topic}' has no Iceberg table. Create it with `lakelog pipelines run {pipeline} {topic}`.",
            topic=topic,
        )

    async def load(self, scope: Scope, name: str) -> tuple[str, bytes]:
        """Return the URL of the metadata file of a table, and its content."""
        for attempt in range(1, _TRIES + 1):
            found = await self.find(scope, name)
            try:
                content = await self._extents.get(found.metadata)
                return f"{(self._extents.url or '').rstrip('/')}/{found.metadata}", content
            except ObjectNotFound:
                # The file may have been swept after a newer one took its place.
                if attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    async def tables(self, scope: Scope) -> list[IcebergTable]:
        """Return the tables of an environment, by name."""
        return await self._catalog.iceberg.table_list(scope)

    async def _segments(self, topic: Topic) -> list[Segment]:
        """Return the verified segments of all partitions above the log start, each partition from one snapshot."""
        calls = [
            self._extents.cells[cell].cold.plans([ColdPlanRequest(pid=pid) for pid in pids])
            for cell, pids in topic.pids_by_cell().items()
        ]
        return [segment for share in await gathered(calls) for plan in share for segment in plan.segments]


def _tables_named(name: str) -> list[tuple[str, TableKind]]:
    """Return the tables that can have this name. A topic with such a name goes before a key table."""
    found = [(name, TableKind.MESSAGES)]
    if name.endswith(LATEST_SUFFIX) and name != LATEST_SUFFIX:
        found.append((name.removesuffix(LATEST_SUFFIX), TableKind.LATEST))
    return found


def _check_path(topic: Topic, path: str) -> None:
    folder = topic_folder(topic.scope.environment_id, topic.incarnation)
    is_ours = is_table_file(path) or parse_segment_path(path) is not None
    if not is_ours or not path.startswith(f"{folder}/"):
        raise InvalidRequest(f"{path[:200]!r} is not a file of topic '{topic.name}'.", path=path[:200])
