"""`tier`: moves a topic's older messages from hot tables into segments. Readers see no difference.

A run can be killed at any point, and two runs can overlap: files have unique names, are registered for exact offsets,
are read again and compared, and only then become active. Segments that an earlier run left unverified are verified
first. Tiering deletes nothing: `sweep` deletes unused files, and the server drops hot tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakelog import failpoints
from lakelog.errors import ConfigurationError, ObjectStoreUnavailable
from lakelog.model.lake import RegisterStatus, TierOptions, TierRange
from lakelog.model.segment import Segment
from lakelog.spark.pipelines.runs import RunRecorder, recorded
from lakelog.spark.pipelines.tier_tasks import TierResult, verify_all, write_all
from lakelog.spark.reading.range_reader import ReadTarget, writing_target
from lakelog.spark.session import client, connection_to, parallelism, store_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog import Lakelog

PIPELINE = "tier"
SEGMENT_BYTES = 128 << 20
MIN_AGE = timedelta(minutes=5)
TRIES = 2
WAVE = 2
"""Ranges per core that are stored, registered and verified together; a killed run repeats at most this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSummary:
    """The result of tiering a topic, or of a dry run.

    Attributes:
        topic: The topic.
        dry_run: True if this was a dry run, which moves nothing.
        messages: Messages that were moved, or would be.
        segments: Segments that were written, or would be.
        bytes: Size of the files; in a dry run, of the stored batches.
        settled: Segments of an earlier run that were verified by this run.
        dropped: Segments whose file differed from what was sealed, and that were unregistered. Their messages stay hot.
        taken: Ranges that another run registered first, or that retention removed.
        planned_messages: Messages that the run planned to move.
        planned_segments: Segments that the run planned to write.
        hot: Messages that are only in PostgreSQL, if there was nothing to tier.
        total: Messages of the topic, if there was nothing to tier.
    """

    topic: str
    dry_run: bool = False
    messages: int = 0
    segments: int = 0
    bytes: int = 0
    settled: int = 0
    dropped: int = 0
    taken: int = 0
    planned_messages: int = 0
    planned_segments: int = 0
    hot: int = 0
    total: int = 0

    @property
    def is_nothing(self) -> bool:
        """True if there was nothing to tier."""
        return not (self.segments or self.settled or self.taken or self.dropped)

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        names = ("messages", "segments", "bytes", "settled", "dropped", "taken", "planned_messages", "planned_segments")
        return {name: getattr(self, name) for name in names}


Watch = Callable[[TierSummary], None]


def tier(
    spark: SparkSession,
    topic: str,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    min_bytes: int | None = None,
    min_age: timedelta | float = MIN_AGE,
    dry_run: bool = False,
    on_progress: Watch | None = None,
    url: str | None = None,
    token: str | None = None,
) -> TierSummary:
    """Move messages of a topic to segments: full segments, and the rest if it is large or old enough.

    After a failure, call it again; it continues where it stopped.

    Args:
        spark: The session.
        topic: The topic to tier.
        segment_bytes: The target size of a segment, in stored bytes. Default: 128 MiB.
        min_bytes: Messages that do not fill a segment are moved if they have this size, in bytes. Default:
            `segment_bytes`.
        min_age: Messages that do not fill a segment are moved if the oldest has this age, in seconds or as a timedelta.
            Default: five minutes.
        dry_run: Only count what would be moved. Default: False.
        on_progress: A function that is called with the result so far after each group of segments.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If the server has no object store.
        PipelineBusy: If another run of the topic is active.
    """
    connection = connection_to(url, token, spark)
    log = client(connection)
    age = min_age.total_seconds() if isinstance(min_age, timedelta) else float(min_age)
    least = segment_bytes if min_bytes is None else min_bytes
    options = TierOptions(segment_bytes=segment_bytes, min_bytes=least, min_age_ms=int(age * 1000))
    if dry_run:
        return planned(log, topic, options)
    plan = log.lake.plan(topic)
    if plan.store is None:
        raise no_store()
    place = writing_target(log, connection, plan, store_options(spark))
    with recorded(log, PIPELINE, topic) as recorder:
        return _TierRun(spark, log, place, plan.environment_id, recorder, on_progress or _ignore).run(
            options, {each.partition: each.high_watermark for each in plan.partitions}
        )


def planned(log: Lakelog, topic: str, options: TierOptions) -> TierSummary:
    """Return what a run would do."""
    ranges = tierable(log, topic, options)
    messages = sum(each.end - each.first for each in ranges)
    return TierSummary(
        topic=topic,
        dry_run=True,
        messages=messages,
        segments=len(ranges),
        bytes=sum(each.bytes for each in ranges),
        settled=len(log.lake.unverified(topic)),
        planned_messages=messages,
        planned_segments=len(ranges),
    )


def explained(log: Lakelog, done: TierSummary) -> TierSummary:
    """Return the result with `hot` and `total`, which explain why there was nothing to tier."""
    partitions = log.lake.plan(done.topic).partitions
    return replace(
        done,
        hot=sum(
            each.high_watermark
            - max(each.hot_from, each.log_start)
            - sum(segment.end - segment.first for segment in each.later)
            for each in partitions
        ),
        total=sum(each.high_watermark - each.log_start for each in partitions),
    )


def tierable(log: Lakelog, topic: str, options: TierOptions) -> list[TierRange]:
    """Return the ranges that can become segments."""
    return log.lake.tierable(
        topic, segment_bytes=options.segment_bytes, min_bytes=options.min_bytes, min_age=options.min_age_ms / 1000
    )


def no_store() -> ConfigurationError:
    return ConfigurationError(
        "There is no object store to tier to: set LAKELOG_OBJECT_STORE for the server (file:///folder or "
        "s3://bucket/prefix), and start it again."
    )


class _TierRun:
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
        self._lake = log.lake
        self._place = place
        self._environment_id = environment_id
        self._recorder = recorder
        self._watch = watch
        self._done = TierSummary(topic=place.topic)
        self._troubles: list[str] = []

    def run(self, options: TierOptions, ends: Mapping[int, int]) -> TierSummary:
        """Tier the ranges that begin below `ends`. Messages that arrive during the run are left to the next run."""
        left = self._lake.unverified(self._place.topic)
        self._note(settled=self._settle(left))
        tried: Counter[tuple[int, int]] = Counter()
        while ranges := [each for each in self._ranges(options, ends) if tried[each.partition, each.first] < TRIES]:
            tried.update((each.partition, each.first) for each in ranges)
            self._note(
                planned_messages=self._done.messages + sum(each.end - each.first for each in ranges),
                planned_segments=self._done.segments + len(ranges),
            )
            failpoints.hit("tier.planned")
            for wave in waves(ranges, WAVE * parallelism(self._spark)):
                self._wave(wave)
        if missed := self._ranges(options, ends):
            why = self._troubles[-1] if self._troubles else "Some files differ from what was written."
            raise ObjectStoreUnavailable(
                f"{len(missed)} of the segments could not be written: {why} What was done stays; run it again.",
                topic=self._place.topic,
            )
        return self._done

    def _ranges(self, options: TierOptions, ends: Mapping[int, int]) -> list[TierRange]:
        found = tierable(self._log, self._place.topic, options)
        return [each for each in found if each.first < ends.get(each.partition, 0)]

    def _wave(self, ranges: Sequence[TierRange]) -> None:
        written = write_all(self._spark, self._place, self._environment_id, ranges)
        self._trouble(written)
        segments = [outcome.segment for outcome in written if outcome.segment is not None]
        failpoints.hit("tier.written")
        registered = self._register(segments)
        failpoints.hit("tier.registered")
        self._settle(registered)

    def _register(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return the segments that are now registered.

        The file of a segment that was refused stays until `sweep` removes it.
        """
        if not segments:
            return []
        answers = self._lake.register(self._place.topic, segments)
        ours = [
            segment
            for segment, answer in zip(segments, answers, strict=True)
            if answer.status is not RegisterStatus.TAKEN
        ]
        self._note(taken=self._done.taken + len(segments) - len(ours))
        return ours

    def _settle(self, segments: Sequence[Segment]) -> int:
        """Read the files again, and return the number of segments that became active."""
        if not segments:
            return 0
        outcomes = verify_all(self._spark, self._place, segments)
        self._trouble(outcomes)
        good = [outcome.segment for outcome in outcomes if outcome.segment is not None and not outcome.error]
        bad = [outcome.segment for outcome in outcomes if outcome.segment is not None and outcome.is_damaged]
        failpoints.hit("tier.before_verified")
        if good:
            known = self._lake.verified(self._place.topic, good)
            # Another run or retention may have removed a segment; it is not counted here then.
            good = [segment for segment, is_known in zip(good, known, strict=True) if is_known]
        failpoints.hit("tier.verified")
        if bad:
            self._lake.unregister(self._place.topic, bad)
        self._note(
            messages=self._done.messages + sum(segment.end - segment.first for segment in good),
            segments=self._done.segments + len(good),
            bytes=self._done.bytes + sum(segment.bytes for segment in good),
            dropped=self._done.dropped + len(bad),
        )
        return len(good)

    def _trouble(self, outcomes: Iterable[TierResult]) -> None:
        self._troubles += [outcome.error for outcome in outcomes if outcome.error]

    def _note(self, **figures: Any) -> None:
        self._done = replace(self._done, **figures)
        self._watch(self._done)
        self._recorder.update(self._done.figures())


def waves(ranges: Iterable[TierRange], size: int) -> Iterator[list[TierRange]]:
    """Yield the first range of each partition, then the second, so that files are registered in order."""
    by_partition = sorted(ranges, key=lambda each: (each.partition, each.first))
    turns = [
        (turn, each)
        for _, group in groupby(by_partition, key=lambda each: each.partition)
        for turn, each in enumerate(group)
    ]
    ordered = [each for _, each in sorted(turns, key=lambda pair: (pair[0], pair[1].partition))]
    for start in range(0, len(ordered), size):
        yield sorted(ordered[start : start + size], key=lambda each: (each.partition, each.first))


def _ignore(done: TierSummary) -> None:
    return None
