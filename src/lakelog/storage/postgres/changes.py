"""Reads which of many known rows have changed, with one statement per database."""

from __future__ import annotations

from lakelog.storage.changes import ChangedRows, ChangedVersions, KnownRows, KnownVersions
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("changes")


async def changes_read(database: Database, known: KnownRows) -> ChangedRows:
    """Implement `ChangeStore.changes_read`."""
    pids, journals, groups = list(known.heads), list(known.journals), list(known.members)
    rows = await database.read(
        _SQL["changes_read"],
        pids,
        [log_start for log_start, _ in known.heads.values()],
        [next_offset for _, next_offset in known.heads.values()],
        [group_id for group_id, _ in journals],
        [pid for _, pid in journals],
        [version for version, _ in known.journals.values()],
        [nonce for _, nonce in known.journals.values()],
        groups,
        list(known.members.values()),
    )
    return ChangedRows(
        heads={pids[part - 1]: (start, end) for kind, part, start, end in rows if kind == 0},
        journals={journals[part - 1] for kind, part, _, _ in rows if kind == 1},
        members={groups[part - 1] for kind, part, _, _ in rows if kind == 2},
        clock_ms=next(clock for kind, _, clock, _ in rows if kind == 3),
    )


async def versions_read(database: Database, known: KnownVersions) -> ChangedVersions:
    """Implement `GroupCatalog.versions_read`."""
    groups, group_topics, topics = list(known.groups), list(known.group_topics), list(known.topics)
    rows = await database.read(
        _SQL["versions_read"],
        groups,
        list(known.groups.values()),
        [group_id for group_id, _ in group_topics],
        [incarnation for _, incarnation in group_topics],
        list(known.group_topics.values()),
        topics,
        list(known.topics.values()),
    )
    changed = {groups[part - 1] for kind, part in rows if kind == 0}
    return ChangedVersions(
        groups=changed | {group_topics[part - 1][0] for kind, part in rows if kind == 1},
        topics={topics[part - 1] for kind, part in rows if kind == 2},
    )
