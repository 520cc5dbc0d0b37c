"""`tier`: moves a topic's older messages from hot tables into segments. Readers notice nothing.

The order makes it safe to die anywhere, and to run twice at once: files are stored under unique names, registered for
exact offsets, read again and compared, and only then count. What an earlier run left unverified is settled first.
Nothing is ever deleted here: a file that does not count is an orphan, for `sweep`; hot tables are the server's to drop.
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
from lakelog.spark.reading.range_reader import ReadTarget
from lakelog.spark.session import client, connection_to, parallelism, store_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog import Lakelog

PIPELINE = "tier"
SEGMENT_BYTES = 128 << 20
MIN_AGE = timedelta(minutes=5)
TRIES = 2
WAVE = 2
"""So many ranges a core are stored, registered and verified before the next ones: what a kill may repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSummary:
    """What a run did, or with `dry_run` would do."""

    topic: str
    dry_run: bool = False
    messages: int = 0
    segments: int = 0
    bytes: int = 0
    """Of the files; with `dry_run`, of the stored batches."""
    settled: int = 0
    """Segments that an earlier run had left unverified, and that count now."""
    dropped: int = 0
    """Segments that did not hold what was sealed: taken out again, their messages are hot."""
    taken: int = 0
    """Ranges that somebody else had registered first, or that retention took."""
    planned_messages: int = 0
    planned_segments: int = 0
    hot: int = 0
    """Messages that are in PostgreSQL only, when there was nothing to tier."""
    total: int = 0
    """Messages of the topic, when there was nothing to tier."""

    @property
    def is_nothing(self) -> bool:
        """Whether there was nothing to tier."""
        return not (self.segments or self.settled or self.taken or self.dropped)

    def figures(self) -> dict[str, int]:
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
    """Tiers what the topic has: whole segments, and the rest if it is `min_bytes` large or its oldest `min_age` old.

    Refused while another run of the topic goes on. Repeat it after any failure: it goes on where it was.
    """
    connection = connection_to(url, token, spark)
    log = client(connection)
    age = min_age.total_seconds() if isinstance(min_age, timedelta) else float(min_age)
    least = segment_bytes if min_bytes is None else min_bytes
    wish = TierOptions(segment_bytes=segment_bytes, min_bytes=least, min_age_ms=int(age * 1000))
    if dry_run:
        return planned(log, topic, wish)
    plan = log.lake.plan(topic)
    if plan.store is None:
        raise no_store()
    place = ReadTarget(
        connection=connection,
        topic=topic,
        incarnation=plan.incarnation,
        store=plan.store,
        store_options=store_options(spark),
    )
    with recorded(log, PIPELINE, topic) as recorder:
        return _TierRun(spark, log, place, plan.environment_id, recorder, on_progress or _ignore).run(
            wish, {each.partition: each.high_watermark for each in plan.partitions}
        )


def planned(log: Lakelog, topic: str, wish: TierOptions) -> TierSummary:
    """What a run would do."""
    ranges = tierable(log, topic, wish)
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
    """Return the same with `hot` and `total`, which say why there was nothing to tier."""
    partitions = log.lake.plan(done.topic).partitions
    return replace(
        done,
        hot=sum(each.high_watermark - max(each.hot_from, each.log_start) for each in partitions),
        total=sum(each.high_watermark - each.log_start for each in partitions),
    )


def tierable(log: Lakelog, topic: str, wish: TierOptions) -> list[TierRange]:
    """Ranges that may become segments."""
    return log.lake.tierable(
        topic, segment_bytes=wish.segment_bytes, min_bytes=wish.min_bytes, min_age=wish.min_age_ms / 1000
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

    def run(self, wish: TierOptions, ends: Mapping[int, int]) -> TierSummary:
        """Tiers what begins below `ends`: what comes while it runs is left to the next run, or it would never end."""
        left = self._lake.unverified(self._place.topic)
        self._note(settled=self._settle(left))
        tried: Counter[tuple[int, int]] = Counter()
        while ranges := [each for each in self._ranges(wish, ends) if tried[each.partition, each.first] < TRIES]:
            tried.update((each.partition, each.first) for each in ranges)
            self._note(
                planned_messages=self._done.messages + sum(each.end - each.first for each in ranges),
                planned_segments=self._done.segments + len(ranges),
            )
            failpoints.hit("tier.planned")
            for wave in waves(ranges, WAVE * parallelism(self._spark)):
                self._wave(wave)
        if missed := self._ranges(wish, ends):
            why = self._troubles[-1] if self._troubles else "Files do not read back as they were written."
            raise ObjectStoreUnavailable(
                f"{len(missed)} of the segments could not be made: {why} What was done stays; run it again.",
                topic=self._place.topic,
            )
        return self._done

    def _ranges(self, wish: TierOptions, ends: Mapping[int, int]) -> list[TierRange]:
        found = tierable(self._log, self._place.topic, wish)
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
        """Those that are registered now. The file of another is left as it is: an orphan, if it is nobody's."""
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
        """Reads the files again; how many segments count now."""
        if not segments:
            return 0
        outcomes = verify_all(self._spark, self._place, segments)
        self._trouble(outcomes)
        good = [outcome.segment for outcome in outcomes if outcome.segment is not None and not outcome.error]
        bad = [outcome.segment for outcome in outcomes if outcome.segment is not None and outcome.is_damaged]
        failpoints.hit("tier.before_verified")
        if good:
            known = self._lake.verified(self._place.topic, good)
            # Another run may have taken one out again, or retention: then it is not ours to count.
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
    """In turns: the first of each partition, then the second. So a partition's files are registered in order."""
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
