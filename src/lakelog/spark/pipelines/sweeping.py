"""`sweep`: deletes unused files of the environment. It lists and deletes files, and neither reads nor moves messages.

A file is deleted only if two checks, at least a day apart and recorded in the catalog, found it unused, and only if its
name is that of a segment, of an Iceberg table's file or of a receipt of a load. No Spark session is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from lakelog import failpoints
from lakelog.model.lake import ORPHAN_AGE
from lakelog.objectstore import StoredObject, open_store
from lakelog.segments.layout import is_receipt, is_table_file, parse_segment_path
from lakelog.spark.pipelines.runs import recorded
from lakelog.spark.pipelines.tiering import no_store
from lakelog.spark.session import client, connection_to

if TYPE_CHECKING:
    from lakelog import Lakelog

PIPELINE = "sweep"
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """The result of a sweep, or of a dry run.

    Attributes:
        dry_run: True if this was a dry run, which deletes nothing.
        files: Files that were checked.
        deleted: Files that were deleted, or would be.
        bytes: Size of these files.
    """

    dry_run: bool = False
    files: int = 0
    deleted: int = 0
    bytes: int = 0

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        return {"files": self.files, "deleted": self.deleted, "bytes": self.bytes}


Watch = Callable[[SweepSummary], None]


def sweep(
    *,
    min_age: timedelta = ORPHAN_AGE,
    dry_run: bool = False,
    on_progress: Watch | None = None,
    url: str | None = None,
    token: str | None = None,
) -> SweepSummary:
    """Delete files that were found unused at least `min_age` ago and are still unused. Run it daily.

    Args:
        min_age: The time between the two checks that find a file unused. Default: one day.
        dry_run: Delete nothing; the check is recorded nevertheless. Default: False.
        on_progress: A function that is called with the result so far after each page of files.
        url: The URL of the server. Default: `LAKELOG_URL`, then the server of `lakelog dev` in this folder.
        token: The token. Default: `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If the server has no object store.
        PipelineBusy: If another sweep is running.
    """
    log = client(connection_to(url, token))
    watch = on_progress or (lambda done: None)
    if dry_run:
        return sweep_of(log, min_age=min_age, dry_run=True, note=watch)
    with recorded(log, PIPELINE) as recorder:

        def note(done: SweepSummary) -> None:
            watch(done)
            recorder.update(done.figures())

        return sweep_of(log, min_age=min_age, note=note)


def sweep_of(
    log: Lakelog, *, min_age: timedelta = ORPHAN_AGE, dry_run: bool = False, note: Watch = lambda done: None
) -> SweepSummary:
    """Sweep with this client, without a record of the run. The arguments are those of `sweep`."""
    done = SweepSummary(dry_run=dry_run)
    topics = log.topics()
    if not topics:
        # The plan of a topic tells where the files are, so without topics there is nothing to sweep.
        return done
    plan = log.lake.plan(topics[0].name)
    if plan.store is None:
        raise no_store()
    store = open_store(plan.store)
    every = store.list(f"e{plan.environment_id}")
    # A receipt belongs to no segment, so it is swept. As every file, it outlives the backups that are older than it.
    ours = (parse_segment_path, is_table_file, is_receipt)
    found = (each for each in every if any(test(each.path) for test in ours))
    for page in _pages(found):
        sizes = {each.path: each.bytes for each in page}
        orphans = sorted(log.lake.look(list(sizes), min_age=min_age))
        if not dry_run:
            failpoints.hit("sweep.before_delete")
            store.delete_many(orphans)
            log.lake.swept(orphans)
        done = replace(
            done,
            files=done.files + len(page),
            deleted=done.deleted + len(orphans),
            bytes=done.bytes + sum(sizes[path] for path in orphans),
        )
        note(done)
    return done


def _pages(found: Iterator[StoredObject]) -> Iterator[list[StoredObject]]:
    while page := list(islice(found, PAGE)):
        yield page
