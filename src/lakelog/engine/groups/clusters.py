"""Clusters of dead letters: those of a group by fingerprint, over all cells. The module changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.positions import gathered
from lakelog.engine.log.topics import Topics
from lakelog.model.dead_letter_clusters import MAX_CLUSTERS, ClusterQuery, DeadLetterCluster, DeadLetterClusters
from lakelog.model.fingerprint import fingerprint_of, parse_fingerprint, show_fingerprint
from lakelog.model.message import PARTITION_BITS, message_id, partition_of_id
from lakelog.model.times import to_time
from lakelog.model.topic import Scope, Topic
from lakelog.storage.incidents import StoredCluster
from lakelog.storage.store import Catalog, PartitionStore

_MOST = 2 * MAX_CLUSTERS


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a cluster in a topic and a cell."""

    topic: Topic
    stored: StoredCluster


class Clusters:
    """The clusters of all groups."""

    def __init__(
        self, catalog: Catalog, cells: Mapping[int, PartitionStore], topics: Topics, directory: GroupDirectory
    ) -> None:
        self._catalog = catalog
        self._cells = cells
        self._topics = topics
        self._directory = directory

    async def list(self, scope: Scope, query: ClusterQuery) -> DeadLetterClusters:
        """Return the largest clusters of the dead letters in the state dead, or the chosen one."""
        group = await self._directory.resolve(scope, query.group, create=False)
        topics = [topic for topic, _ in await self._catalog.groups.group_topic_list(group)]
        if query.topic is not None:
            topics = [await self._topics.find(scope, query.topic)]
        by_incarnation = {topic.incarnation: topic for topic in topics}
        pids: dict[int, list[int]] = {}
        for topic in topics:
            for cell, some in topic.pids_by_cell().items():
                pids.setdefault(cell, []).extend(some)
        chosen = None if query.fingerprint is None else parse_fingerprint(query.fingerprint)
        read = await gathered(
            self._cells[cell].groups.incidents.dead_clusters(group.group_id, some, fingerprint=chosen, limit=_MOST)
            for cell, some in pids.items()
        )
        parts: dict[int | None, list[_Part]] = {}
        for stored in (each for cell in read for each in cell):
            topic = by_incarnation[stored.pid >> PARTITION_BITS]
            parts.setdefault(stored.fingerprint, []).append(_Part(topic, stored))
        found = sorted(map(_cluster, parts.values()), key=lambda each: (each.count, each.last_at), reverse=True)
        return DeadLetterClusters(
            clusters=tuple(found[: query.limit]),
            examined=sum(each.count for each in found),
            has_more=len(found) > query.limit,
        )


def _cluster(parts: Sequence[_Part]) -> DeadLetterCluster:
    last = max(parts, key=lambda part: part.stored.last_ms)
    stored = last.stored
    fingerprint = fingerprint_of(stored.reason, stored.traceback)
    return DeadLetterCluster(
        fingerprint="" if stored.fingerprint is None else show_fingerprint(stored.fingerprint),
        kind=fingerprint.kind,
        pattern=fingerprint.pattern,
        frame=fingerprint.frame,
        count=sum(part.stored.count for part in parts),
        first_at=to_time(min(part.stored.first_ms for part in parts)),
        last_at=to_time(stored.last_ms),
        topics=tuple(sorted({part.topic.name for part in parts})),
        example=message_id(last.topic.incarnation, partition_of_id(stored.pid), stored.offset),
        error=stored.reason,
    )
