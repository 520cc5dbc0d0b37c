"""`iceberg`: brings the Iceberg table of a topic to its verified segments. It writes metadata only.

Segments are neither copied nor opened: their statistics come from PostgreSQL. A run can be killed at any point, and two
runs can overlap: the catalog accepts a version only from the run that saw the one before. No Spark session is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakelog import failpoints
from lakelog.errors import ConfigurationError, Conflict, LakelogError, PipelineBusy, TopicNotFound
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.iceberg.table_files import TableFiles
from lakelog.spark.pipelines.runs import recorded
from lakelog.spark.session import client, connection_to

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.model.iceberg import IcebergChanges

PIPELINE = "iceberg"
TRIES = 5
"""Attempts at a version of a table, if other runs commit versions at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSummary:
    """The result of bringing a table to its topic, or of a dry run.

    Attributes:
        topic: The topic.
        dry_run: True if this was a dry run, which writes nothing.
        version: The version of the table; 0 if there is none.
        added: Segments that the table got, or would get.
        removed: Files that left the table, or would leave it: retention passed them, or others took their place.
        messages: Messages of the segments that were added.
        commits: Versions that this run committed.
    """

    topic: str
    dry_run: bool = False
    version: int = 0
    added: int = 0
    removed: int = 0
    messages: int = 0
    commits: int = 0

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        return {name: getattr(self, name) for name in ("version", "added", "removed", "messages", "commits")}


Watch = Callable[[IcebergSummary], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergJob:
    """The topics to bring to their tables, and the interval."""

    topics: Sequence[str] = ()
    """The topics; empty for all topics of the environment."""
    every_seconds: float | None = None
    dry_run: bool = False


def iceberg(
    topic: str,
    *,
    dry_run: bool = False,
    url: str | None = None,
    token: str | None = None,
) -> IcebergSummary:
    """Bring the Iceberg table of a topic to its verified segments. A repeated call does nothing.

    Args:
        topic: The topic.
        dry_run: Only count what would be added and removed. Default: False.
        url: The URL of the server. Default: `LAKELOG_URL`, then the server of `lakelog dev` in this folder.
        token: The token. Default: `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If the server has no object store.
        PipelineBusy: If another run of the topic is active.
    """
    return iceberg_topic(client(connection_to(url, token)), topic, dry_run=dry_run)


def run_iceberg(
    log: Lakelog, job: IcebergJob, ended: Watch, passed: Callable[[str, LakelogError], None]
) -> list[IcebergSummary]:
    """Run the job once, or until it is stopped, and return the result of each topic.

    Args:
        log: The client.
        job: The job.
        ended: Called with the result of each topic.
        passed: Called with a topic that is left to the next run, and the reason.
    """
    while True:
        began = time.monotonic()
        try:
            results = _run_once(log, job, ended, passed)
        except LakelogError as error:
            if job.every_seconds is None or not error.retryable:
                raise
            passed("", error)
        if job.every_seconds is None:
            return results
        time.sleep(max(0.0, began + job.every_seconds - time.monotonic()))


def _run_once(
    log: Lakelog, job: IcebergJob, ended: Watch, passed: Callable[[str, LakelogError], None]
) -> list[IcebergSummary]:
    results = []
    for topic in job.topics or [each.name for each in log.topics()]:
        try:
            done = iceberg_topic(log, topic, dry_run=job.dry_run)
        except (PipelineBusy, TopicNotFound, Conflict) as error:
            # One topic of many must not stop the others.
            if job.topics and (job.every_seconds is None or isinstance(error, TopicNotFound)):
                raise
            passed(topic, error)
            continue
        ended(done)
        results.append(done)
    return results


def iceberg_topic(log: Lakelog, topic: str, *, dry_run: bool = False, creates: bool = True) -> IcebergSummary:
    """Bring the table of a topic to its verified segments, and return the result.

    Args:
        log: The client.
        topic: The topic.
        dry_run: Only count.
        creates: Whether to create the table if there is none.
    """
    changes = log.lake.iceberg_changes(topic)
    if not (changes.version or creates):
        return IcebergSummary(topic=topic, dry_run=dry_run)
    if changes.store is None:
        raise ConfigurationError(
            "There is no object store: set LAKELOG_OBJECT_STORE for the server (file:///folder or s3://bucket/prefix), "
            "and start it again."
        )
    if dry_run:
        return replace(_counted(IcebergSummary(topic=topic, dry_run=True, version=changes.version), changes), commits=0)
    store = open_store(changes.store)
    if not changes.steps and (changes.version == 0 or TableFiles(store, changes).is_current):
        return IcebergSummary(topic=topic, version=changes.version)
    with recorded(log, PIPELINE, topic) as recorder:
        done = IcebergSummary(topic=topic, version=changes.version)
        while True:
            done, is_complete = _committed(log, store, changes, done)
            recorder.update(done.figures())
            if is_complete:
                return done
            changes = log.lake.iceberg_changes(topic)


def _committed(
    log: Lakelog, store: ObjectStore, changes: IcebergChanges, done: IcebergSummary
) -> tuple[IcebergSummary, bool]:
    """Commit the next version, and return the result so far, and whether the table has all segments."""
    for attempt in range(1, TRIES + 1):
        commit = TableFiles(store, changes).write()
        if commit is None:
            return done, changes.rest == 0
        failpoints.hit("iceberg.written")
        try:
            table = log.lake.commit_iceberg(commit)
        except Conflict:
            # The files of this attempt belong to nothing, and the sweep deletes them.
            if attempt == TRIES:
                raise
            changes = log.lake.iceberg_changes(done.topic)
            continue
        failpoints.hit("iceberg.committed")
        return replace(_counted(done, changes), version=table.version), changes.rest == 0
    raise AssertionError("unreachable")


def _counted(done: IcebergSummary, changes: IcebergChanges) -> IcebergSummary:
    added = [segment for step in changes.steps for segment in step.added]
    return replace(
        done,
        added=done.added + len(added),
        removed=done.removed + sum(len(step.removed) for step in changes.steps),
        messages=done.messages + sum(segment.end - segment.first for segment in added),
        commits=done.commits + 1,
    )
