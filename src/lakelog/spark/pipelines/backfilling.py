"""`backfill`: adds the rows of a DataFrame to a topic, each once.

Into empty partitions, the rows are *loaded*: tasks write segment files with the original times, and one decision for
each partition appends them. Otherwise, the rows are *published* in shares, each by one write. Both decisions are final
under the name of the backfill, so a run that was killed continues: what was decided is left out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakelog import failpoints
from lakelog.client.replaying.options import MAX_RATE, MIN_RATE
from lakelog.errors import Conflict, InvalidRequest, ObjectStoreUnavailable
from lakelog.model.arguments import check_number
from lakelog.model.load import Loaded, LoadRequest, LoadStatus, PartitionLoad
from lakelog.model.names import check_name
from lakelog.model.write import DecideOptions
from lakelog.spark.pipelines.backfill_rows import PLACE, SHARE, BackfillRows, PartRows, RowOptions, fingerprint_of
from lakelog.spark.pipelines.backfill_tasks import HistoryTarget, write_history
from lakelog.spark.pipelines.receipts import Receipts
from lakelog.spark.pipelines.runs import RunRecorder, recorded
from lakelog.spark.pipelines.tiering import SEGMENT_BYTES
from lakelog.spark.reading.range_reader import writing_target
from lakelog.spark.session import ConnectionSettings, client, connection_to, parallelism, store_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakelog import Lakelog
    from lakelog.model.lake import Plan
    from lakelog.model.topic_info import TopicInfo

PIPELINE = "backfill"
SHARE_ROWS = 100_000
"""About the number of rows of a share, so that a rate is not met by long pauses."""
_MAX_WAVES = 4
"""A load reads all rows in each wave, and a run that is killed repeats one."""
_PROBE = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSummary:
    """The result of a backfill, or of a dry run.

    Attributes:
        topic: The topic that is written.
        dry_run: True if this was a dry run, which adds nothing.
        is_history: True if the rows are loaded with their original times; False if they are published.
        messages: All rows.
        added: Rows that this run added.
        known: Rows that an earlier run with the name had added.
        remaining: Rows that are not in the topic.
    """

    topic: str
    dry_run: bool = False
    is_history: bool = False
    messages: int = 0
    added: int = 0
    known: int = 0
    remaining: int = 0

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        return {name: getattr(self, name) for name in ("messages", "added", "known", "remaining")}


Watch = Callable[[BackfillSummary], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillJob:
    """The topic, the columns, the name and the rate of a backfill."""

    topic: str
    rows: RowOptions = field(default_factory=RowOptions)
    name: str | None = None
    history: bool | None = None
    rate: float | None = None
    dry_run: bool = False
    origin: str | None = None
    """Identifies rows that may be more in the next run, such as those of a topic. Their hash is not compared."""

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("name", self.name)
        if self.rate is not None:
            check_number("rate", self.rate, MIN_RATE, MAX_RATE)
            if self.history:
                raise InvalidRequest("Rows that are loaded as history have no rate. Leave out `rate` or `history`.")


def backfill(
    df: DataFrame,
    topic: str,
    *,
    key: str | None = None,
    time: str | None = None,
    order: Sequence[str] = (),
    name: str | None = None,
    history: bool | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    on_progress: Watch | None = None,
    url: str | None = None,
    token: str | None = None,
) -> BackfillSummary:
    """Add the rows of a DataFrame to a topic, each once, with their original times if the topic is empty.

    A DataFrame with a column `value` has the columns of a message, as in `format("lakelog")`; a struct becomes JSON.
    Otherwise each whole row becomes the value, as JSON. The key chooses the partition; the content of a row without a
    key does.

    With a `name`, a run that was killed or stopped continues when it is called again with the same rows, and adds none
    of them twice. The name is remembered with the topic when rows are loaded, and for a year when they are published.

    Args:
        df: The rows. The run reads them several times, so they must not change; write random values to files first.
        topic: The topic to write, which must exist.
        key: The column of the key. Default: the column `key`, if there is a column `value`.
        time: The column with the original time, a timestamp. Default: `appended_at`, if there is one. Loaded rows have
            it as their time of appending, or the present time without it; published rows have it as `created_at`.
        order: Columns that order the rows of a key with equal times. Default: none.
        name: The name of the backfill in the topic. Default: None, a run that fails cannot be continued.
        history: Load the rows as segment files with their original times. It needs an object store, and a topic without
            a schema whose partitions have no messages. Default: load if that is possible and there is no rate, and
            publish otherwise.
        rate: Messages to publish in a second at most, above zero, on average over shares of about 100,000. Default:
            None, no limit.
        dry_run: Only count the rows. Default: False.
        on_progress: A function that is called with the result so far, after each group of partitions or each share.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        InvalidRequest: If an argument or a column is not valid.
        TopicNotFound: If the topic does not exist.
        PipelineBusy: If another backfill of the topic is running.
        Conflict: If the rows differ from those of an earlier run with the name, or if messages were published to a
            partition while its history was written.
    """
    job = BackfillJob(
        topic=topic,
        rows=RowOptions(key=key, time=time, order=tuple(order)),
        name=name,
        history=history,
        rate=rate,
        dry_run=dry_run,
    )
    return run_backfill(connection_to(url, token, df.sparkSession), df, job, on_progress)


def run_backfill(
    connection: ConnectionSettings, df: DataFrame, job: BackfillJob, on_progress: Watch | None = None
) -> BackfillSummary:
    """Run a backfill, and return its result."""
    log = client(connection)
    info, plan = log.topic(job.topic).describe(), log.lake.plan(job.topic)
    rows = BackfillRows(df, job.rows)
    known = log.lake.find_load(job.topic, job.name) if job.name is not None else []
    is_history = is_loadable(info, plan, job, known)
    if job.dry_run:
        return _Backfill(connection, rows, job, info, plan, lambda done: None).planned(known, is_history)
    with recorded(log, PIPELINE, job.topic) as recorder:
        run = _Backfill(connection, rows, job, info, plan, _watch(recorder, on_progress))
        return run.load(known) if is_history else run.publish(known)


def is_loadable(info: TopicInfo, plan: Plan, job: BackfillJob, known: Sequence[Loaded] = ()) -> bool:
    """Return whether rows are loaded with their times, and not published. Refuse what the caller asks in vain."""
    if job.history is False or (job.history is None and job.rate is not None):
        return False
    decided = {each.partition for each in known}
    full = [
        each.partition
        for each in plan.partitions
        if each.log_start < each.high_watermark and each.partition not in decided
    ]
    reasons = {
        "the server has no object store": plan.store is None,
        "the topic has a schema, and values in files are not validated": info.schema_version is not None,
        f"partition {full[0] if full else 0} has messages already": bool(full),
    }
    reason = next((text for text, applies in reasons.items() if applies), None)
    if reason is not None and (job.history or decided):
        raise Conflict(
            f"Rows cannot be loaded into topic '{job.topic}' as history: {reason}. Publish them, with `history=False` "
            "or `--publish`; partitions that are loaded are left out.",
            topic=job.topic,
        )
    return reason is None


def _watch(recorder: RunRecorder, on_progress: Watch | None) -> Watch:
    def note(done: BackfillSummary) -> None:
        if on_progress is not None:
            on_progress(done)
        recorder.update(done.figures())

    return note


class _Backfill:
    """One run of a backfill."""

    def __init__(
        self,
        connection: ConnectionSettings,
        rows: BackfillRows,
        job: BackfillJob,
        info: TopicInfo,
        plan: Plan,
        watch: Watch,
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._job = job
        self._info = info
        self._plan = plan
        self._watch = watch
        self._spark = rows.frame.sparkSession
        self._frame = rows.placed(info.partitions)
        self._name = job.name or f"once-{secrets.token_hex(16)}"
        self._done = BackfillSummary(topic=job.topic)
        self._receipts = Receipts(self._log, plan, self._name, store_options(self._spark))

    @property
    def _log(self) -> Lakelog:
        return client(self._connection)

    def planned(self, known: Sequence[Loaded], is_history: bool) -> BackfillSummary:
        """Return what a run would do. Shares that were published before are counted as remaining."""
        parts = self._counted(known)
        decided = {each.partition for each in known}
        there = sum(each.count for each in parts if each.number in decided)
        self._note(dry_run=True, is_history=is_history, known=there, remaining=self._done.messages - there)
        return self._done

    # Loading ----------------------------------------------------------------------------------------------------------

    def load(self, known: Sequence[Loaded]) -> BackfillSummary:
        """Write the partitions that are not decided to files, a few at a time, and append each one whole."""
        decided = {each.partition for each in known}
        self._receipts.complete(known)
        parts = {each.number: each for each in self._counted(known)}
        there = sum(part.count for number, part in parts.items() if number in decided)
        self._note(is_history=True, known=there, remaining=self._done.messages - there)
        left = [number for number in range(self._info.partitions) if number not in decided]
        size = max(4, 2 * parallelism(self._spark), -(-len(left) // _MAX_WAVES))
        for start in range(0, len(left), size):
            self._load_wave(left[start : start + size], parts)
        return self._done

    def _load_wave(self, partitions: Sequence[int], parts: dict[int, PartRows]) -> None:
        wanted = [number for number in partitions if number in parts]
        firsts = {each.partition: each.high_watermark for each in self._plan.partitions}
        target = HistoryTarget(
            place=writing_target(self._log, self._connection, self._plan, store_options(self._spark)),
            environment_id=self._plan.environment_id,
            epoch=self._plan.epoch,
            firsts=firsts,
            file_bytes=SEGMENT_BYTES,
        )
        results = []
        if wanted:
            now = self._log.lake.watermarks(self._job.topic).now
            # A filter computes the partition of each row again.
            frame = self._frame if len(wanted) == len(parts) else self._frame.where(self._frame[PLACE].isin(wanted))
            results = write_history(self._rows.history(frame, now, 2 * parallelism(self._spark)), target)
        if troubles := [each.error for each in results if each.error]:
            raise ObjectStoreUnavailable(f"The history could not be written: {troubles[0]}", topic=self._job.topic)
        failpoints.hit("backfill.written")
        segments = sorted((each.segment for each in results if each.segment), key=lambda each: each.first)
        for number in partitions:
            part = PartitionLoad(
                partition=number,
                first=firsts[number],
                segments=tuple(each for each in segments if each.partition == number),
                fingerprint=self._fingerprint(parts.get(number)),
            )
            count = parts[number].count if number in parts else 0
            if sum(each.end - each.first for each in part.segments) != count:
                raise self._changed(number)
            (answer,) = self._log.lake.load(
                LoadRequest(topic=self._job.topic, name=self._name, incarnation=self._plan.incarnation, parts=[part])
            )
            failpoints.hit("backfill.loaded")
            self._loaded(answer, count)
            self._receipts.write(answer, part.segments)

    def _loaded(self, answer: Loaded, count: int) -> None:
        if answer.status in (LoadStatus.MOVED, LoadStatus.REFUSED):
            raise Conflict(
                f"The history of partition {answer.partition} of topic '{self._job.topic}' was not added: "
                f"{answer.reason} Partitions that were added before stay. Correct the cause and run it again, or "
                "publish the other rows with `history=False` or `--publish`.",
                topic=self._job.topic,
                partition=answer.partition,
            )
        self._note(added=self._done.added + count, remaining=self._done.remaining - count)

    # Publishing -------------------------------------------------------------------------------------------------------

    def publish(self, known: Sequence[Loaded]) -> BackfillSummary:
        """Publish the rows in shares, except those of partitions that were loaded under the name."""
        decided = [each.partition for each in known]
        self._receipts.complete(known)
        parts = self._counted(known)
        there = sum(each.count for each in parts if each.number in decided)
        self._note(known=there, remaining=self._done.messages - there)
        shares = shares_of(self._done.remaining)
        frame = self._frame.where(~self._frame[PLACE].isin(decided)) if decided else self._frame
        begun = time.monotonic()
        with self._rows.shared(frame, shares) as frame:
            for part in self._rows.parts(frame, SHARE):
                write_id = f"backfill-{fingerprint_of(f'{self._name} {self._info.incarnation} {shares} {part.number}')}"
                if self._is_written(write_id, part):
                    self._note(known=self._done.known + part.count, remaining=self._done.remaining - part.count)
                    continue
                self._publish(frame, part, write_id)
                failpoints.hit("backfill.published")
                self._note(added=self._done.added + part.count, remaining=self._done.remaining - part.count)
                if self._job.rate is not None and self._done.remaining:
                    time.sleep(max(0.0, begun + self._done.added / self._job.rate - time.monotonic()))
        return self._done

    def _publish(self, frame: DataFrame, part: PartRows, write_id: str) -> None:
        share = self._rows.published(frame.where(frame[SHARE] == part.number), parallelism(self._spark))
        options = {**self._connection.options, "topic": self._job.topic, "writeId": write_id}
        share.write.format("lakelog").mode("append").options(**options).save()

    def _is_written(self, write_id: str, part: PartRows) -> bool:
        """Return whether an earlier run has written the share."""
        if self._job.name is None:
            return False
        # Nothing is staged for this attempt, so the server refuses the call, unless the write is decided.
        probe = DecideOptions(
            write_id=write_id,
            attempts=[_PROBE],
            count=part.count,
            incarnation=self._plan.incarnation,
            epoch=self._plan.epoch,
        )
        try:
            written = self._log.writes.decide(self._job.topic, probe)
        except Conflict:
            return False
        if written.count != part.count:
            raise self._changed(None)
        return True

    # Both -------------------------------------------------------------------------------------------------------------

    def _counted(self, known: Sequence[Loaded]) -> list[PartRows]:
        """Count the rows by partition, and check them."""
        parts = self._rows.parts(self._frame, PLACE)
        self._done = replace(self._done, messages=sum(each.count for each in parts))
        if untimed := sum(each.untimed for each in parts):
            raise InvalidRequest(f"{untimed} rows have no time. Leave them out, or give them one.")
        for part in parts:
            if not 0 <= part.number < self._info.partitions:
                raise InvalidRequest(
                    f"Rows name partition {part.number}, and topic '{self._job.topic}' has {self._info.partitions}.",
                    partition=part.number,
                )
        found = {each.number: each for each in parts}
        for each in known:
            if each.fingerprint != self._fingerprint(found.get(each.partition)):
                raise self._changed(each.partition)
        return parts

    def _fingerprint(self, part: PartRows | None) -> str:
        if self._job.origin is not None:
            return fingerprint_of(f"{self._job.origin} {self._info.partitions}")
        return fingerprint_of("") if part is None else part.fingerprint

    def _changed(self, partition: int | None) -> Conflict:
        where = "" if partition is None else f" of partition {partition}"
        return Conflict(
            f"The rows{where} differ from those that backfill '{self._name}' of topic '{self._job.topic}' read before. "
            "Run it with the same rows, or use another name for other rows.",
            topic=self._job.topic,
        )

    def _note(self, **figures: Any) -> None:
        self._done = replace(self._done, **figures)
        self._watch(self._done)


def shares_of(rows: int) -> int:
    """Return the number of shares: a power of two, because write ids depend on it."""
    shares = 1
    while shares * SHARE_ROWS < rows:
        shares *= 2
    return shares
