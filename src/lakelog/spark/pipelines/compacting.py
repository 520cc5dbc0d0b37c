"""`compact`: rewrites the small segments of a topic as larger ones, one day per file. Readers see no difference.

A run can be killed at any point, and two runs can overlap: new files have unique names and are read back, and then
replace the old ones in one transaction, if all of them are still registered. The old files are unused from then on.
`sweep` deletes them after a day, so that readers with an earlier plan still find them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakelog import failpoints
from lakelog.errors import ObjectStoreUnavailable
from lakelog.model.lake import RegisterStatus
from lakelog.spark.pipelines.compact_plan import FILE_BYTES, QUIET, CompactOptions, Replaced, replaceable
from lakelog.spark.pipelines.compact_tasks import CompactResult, merge_all
from lakelog.spark.pipelines.runs import RunRecorder, recorded
from lakelog.spark.pipelines.tiering import WAVE, no_store
from lakelog.spark.reading.range_reader import ReadTarget, writing_target
from lakelog.spark.session import client, connection_to, parallelism, store_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog import Lakelog

PIPELINE = "compact"
ROUNDS = 2
"""The second round merges the parts of segments that the first one split. New segments wait for the next run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSummary:
    """The result of compacting a topic, or of a dry run.

    Attributes:
        topic: The topic.
        dry_run: True if this was a dry run, which replaces nothing.
        messages: Messages that were written to new files, or would be.
        segments: New segments, or groups of segments that would become new ones.
        replaced: Segments that were replaced, or would be.
        bytes: Size of the new files; in a dry run, of the files that would be replaced.
        taken: Groups of segments that another run replaced first, or that retention removed.
        failed: Groups of segments that were not replaced, because a file could not be read or written.
        planned_messages: Messages that the run planned to write.
        total: All segments of the topic before the run.
    """

    topic: str
    dry_run: bool = False
    messages: int = 0
    segments: int = 0
    replaced: int = 0
    bytes: int = 0
    taken: int = 0
    failed: int = 0
    planned_messages: int = 0
    total: int = 0

    @property
    def is_nothing(self) -> bool:
        """True if there was nothing to compact."""
        return not (self.segments or self.taken or self.failed)

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        names = ("messages", "segments", "replaced", "bytes", "taken", "failed", "planned_messages", "total")
        return {name: getattr(self, name) for name in names}


Watch = Callable[[CompactSummary], None]


def compact(
    spark: SparkSession,
    topic: str,
    *,
    file_bytes: int = FILE_BYTES,
    min_age: timedelta | float = QUIET,
    fill_columns: bool = False,
    dry_run: bool = False,
    on_progress: Watch | None = None,
    url: str | None = None,
    token: str | None = None,
) -> CompactSummary:
    """Rewrite adjacent segments of a topic as larger files, each with messages of one partition and day in UTC.

    After a failure, call it again; it continues where it stopped. The old files are deleted by `sweep`, a day later.

    Args:
        spark: The session.
        topic: The topic to compact.
        file_bytes: The largest size of a new file, in bytes. Files of three quarters of it or more are not written
            again. Default: 256 MiB.
        min_age: Segments of a day that do not fill a file are compacted when the newest message has this age, in
            seconds or as a timedelta. Default: one hour.
        fill_columns: Also rewrite files of any size that lack the typed columns which the topic has now. Default:
            False.
        dry_run: Only count what would be replaced. Default: False.
        on_progress: A function that is called with the result so far after each group of files.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If the server has no object store.
        ObjectStoreUnavailable: If some files could not be read or written. The others are replaced.
        PipelineBusy: If another run of the topic is active.
    """
    connection = connection_to(url, token, spark)
    log = client(connection)
    age = min_age if isinstance(min_age, timedelta) else timedelta(seconds=min_age)
    options = CompactOptions(file_bytes=file_bytes, min_age=age, fill_columns=fill_columns)
    if dry_run:
        return planned(log, topic, options)
    plan = log.lake.plan(topic)
    if plan.store is None:
        raise no_store()
    place = writing_target(log, connection, plan, store_options(spark))
    with recorded(log, PIPELINE, topic) as recorder:
        run = _CompactRun(spark, log, place, plan.environment_id, recorder, on_progress or _ignore)
        return run.run(options)


def compactable(log: Lakelog, topic: str, options: CompactOptions) -> tuple[list[Replaced], int]:
    """Return the segments that would be replaced together, and the number of all segments."""
    plan = log.lake.plan(topic)
    total = sum(len(each.segments) + len(each.later) for each in plan.partitions)
    columns = log.topic(topic).describe().columns if options.fill_columns else None
    version = 0 if columns is None else columns.version
    return replaceable(plan, options, log.lake.watermarks(topic).now, version), total


def planned(log: Lakelog, topic: str, options: CompactOptions) -> CompactSummary:
    """Return what a run would do."""
    parts, total = compactable(log, topic, options)
    return CompactSummary(
        topic=topic,
        dry_run=True,
        messages=sum(map(messages_of, parts)),
        segments=len(parts),
        replaced=sum(map(len, parts)),
        bytes=sum(segment.bytes for part in parts for segment in part),
        planned_messages=sum(map(messages_of, parts)),
        total=total,
    )


def messages_of(part: Replaced) -> int:
    return part[-1].end - part[0].first


class _CompactRun:
    """One run over one topic."""

    def __init__(
        self,
        spark: SparkSession,
        log: Lakelog,
        place: ReadTarget,
        environment_id: int,
        recorder: RunRecorder,
        watch: Watch,
    ) -> None:
        self._spark = spark
        self._log = log
        self._place = place
        self._environment_id = environment_id
        self._recorder = recorder
        self._watch = watch
        self._done = CompactSummary(topic=place.topic)
        self._tried: set[str] = set()
        self._troubles: list[str] = []

    def run(self, options: CompactOptions) -> CompactSummary:
        """Replace what can be replaced, also the parts of segments that this run has split."""
        parts, total = self._parts(options)
        self._note(total=total)
        for _ in range(ROUNDS):
            self._note(planned_messages=self._done.messages + sum(map(messages_of, parts)))
            failpoints.hit("compact.planned")
            size = WAVE * parallelism(self._spark)
            for start in range(0, len(parts), size):
                self._wave(parts[start : start + size])
            parts, _ = self._parts(options)
        if self._done.failed:
            raise ObjectStoreUnavailable(
                f"{self._done.failed} groups of files could not be compacted: {self._troubles[-1]} They stay as they "
                "are, and readers use them. Run it again.",
                topic=self._place.topic,
            )
        return self._done

    def _parts(self, options: CompactOptions) -> tuple[list[Replaced], int]:
        """Return what can be replaced, without what this run has tried."""
        parts, total = compactable(self._log, self._place.topic, options)
        return [part for part in parts if part[0].path not in self._tried], total

    def _wave(self, parts: Sequence[Replaced]) -> None:
        self._tried.update(part[0].path for part in parts)
        written = merge_all(self._spark, self._place, self._environment_id, parts)
        failpoints.hit("compact.written")
        for part, result in zip(parts, written, strict=True):
            self._replace(part, result)

    def _replace(self, part: Replaced, result: CompactResult) -> None:
        if result.error:
            self._troubles.append(result.error)
            self._note(failed=self._done.failed + 1)
            return
        failpoints.hit("compact.before_replace")
        answer = self._log.lake.replace(self._place.topic, part, result.segments)
        failpoints.hit("compact.after_replace")
        if answer.status is RegisterStatus.TAKEN:
            # The new files stay until `sweep` deletes them.
            self._note(taken=self._done.taken + 1)
            return
        self._note(
            messages=self._done.messages + messages_of(part),
            segments=self._done.segments + len(result.segments),
            replaced=self._done.replaced + len(part),
            bytes=self._done.bytes + sum(segment.bytes for segment in result.segments),
        )

    def _note(self, **figures: Any) -> None:
        self._done = replace(self._done, **figures)
        self._watch(self._done)
        self._recorder.update(self._done.figures())


def _ignore(done: CompactSummary) -> None:
    return None
