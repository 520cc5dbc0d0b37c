"""Writes to a topic exactly once: tasks stage rows, and one decision on the driver selects the attempts that count.

The first decision about a write id is final. A retried task, two copies of a task, a driver that dies, and a second run
therefore add nothing. A run with another number of rows raises an error. The server removes staged rows without a
decision after a day.

If partitions are added to the topic during a write, the decision moves staged rows to the partitions of their keys.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lakelog import failpoints
from lakelog.client.publishing.staging import StagingEncoder
from lakelog.client.retrying import is_passing
from lakelog.errors import Conflict, EpochChanged, InvalidRequest, LakelogError
from lakelog.model.write import (
    DecideOptions,
    GrowthRule,
    StageOptions,
    StagePiece,
    WriteKind,
    Written,
    check_write_id,
)
from lakelog.spark.options import SPARK_SINK_OPTIONS, WRITE_OPTIONS, known_options, topic_of
from lakelog.spark.session import ConnectionSettings, announced, client, connection_of, short_errors
from lakelog.spark.writing.columns import written_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakelog import Lakelog
    from lakelog.model.topic_info import TopicInfo

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_REQUESTS_AHEAD = 2
"""The number of shares that wait to be sent while the next one is encoded. More would only use memory."""

_DECIDE_TRIES = 4
"""Attempts to decide a write, each with all retries of the client. A write to many partitions may take longer than one.
"""

_log = logging.getLogger(__name__)
_found: set[tuple[ConnectionSettings, str]] = set()


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The topic at the time when partitions were chosen."""

    topic: str
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """The rows that one attempt of a task has staged; empty if it had none."""

    write_id: str
    attempt: str
    count: int
    named: int
    """The number of rows that name their partition."""
    target: WriteTarget | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The target of the rows, and the columns that are written."""

    connection: ConnectionSettings
    topic: str
    columns: Sequence[str]

    def describe(self) -> TopicInfo:
        with announced(self.connection):
            return client(self.connection).topic(self.topic).describe()


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("lakelog").mode("append")`.

    It is created on the driver and pickled for tasks and commit.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        given, _ = known_options(options, WRITE_OPTIONS, of="a write")
        self._to = _destination(given, schema, overwrite)
        named = given.get("writeid")
        self._kind = _kind_of(given.get("writekind", WriteKind.BATCH.value), named)
        self._write_id = check_write_id(named, self._kind) if named else f"batch-{secrets.token_hex(16)}"
        self._is_named = bool(named)
        # Read once by the driver, because a description for each task would be the same.
        self._info = self._to.describe()
        if not named:
            sys.stderr.write(f"lakelog: the writeId of this write is {self._write_id}\n")

    @short_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        context = TaskContext.get()
        if not self._is_named and context is not None and context.getLocalProperty(_QUERY):
            # Spark runs a micro-batch again after a failure, and a new id would write its rows again.
            raise InvalidRequest(
                "A write in foreachBatch needs an id, or a repeated micro-batch writes its rows again. Use "
                "lakelog.spark.write(df, topic, query='a name', batch=batch_id)."
            )
        return _stage(self._to, self._info, self._write_id, iterator)

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _decide(self._to, self._kind, [each for each in messages if isinstance(each, StagedTask)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: staged rows without a decision never become visible, and dead attempts are not listed here."""


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("lakelog")`. The query and the micro-batch form the write id."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        given, _ = known_options(options, WRITE_OPTIONS, of="a write", besides=SPARK_SINK_OPTIONS)
        for name in ("writeId", "writeKind"):
            if given.get(name.lower()):
                raise InvalidRequest(
                    f"A stream creates a write id for each micro-batch itself. Remove the option `{name}`."
                )
        self._to = _destination(given, schema, overwrite)
        _require_once(self._to)

    @short_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
        if not query or not batch:
            raise InvalidRequest("Spark does not report the query and the micro-batch. Use Spark 4.2 or 4.3.")
        # Each task reads it, because a stream runs for long.
        return _stage(self._to, self._to.describe(), f"{query}/{batch}", iterator)

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _decide(self._to, WriteKind.STREAM, [each for each in messages if isinstance(each, StagedTask)])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, as in a batch write."""


def _destination(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkSettings:
    if overwrite:
        raise InvalidRequest(
            "A topic is append-only. Write with .mode('append'), or a stream with .outputMode('append') or 'update'."
        )
    topic = topic_of(given)
    return SinkSettings(connection=connection_of(given), topic=topic, columns=written_columns(schema))


def _require_once(to: SinkSettings) -> None:
    """Raise `TopicNotFound` before any task runs.

    Spark creates the writer twice in each micro-batch. The processes that do so are reused, and check only once.
    """
    place = (to.connection, to.topic)
    if place not in _found:
        to.describe()
        _found.add(place)


def _stage(to: SinkSettings, info: TopicInfo, write_id: str, batches: Iterator[pa.RecordBatch]) -> StagedTask:
    """Stage all rows of a task under a name that no other attempt uses."""
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    attempt = f"{task}-{secrets.token_hex(8)}"
    options = StageOptions(write_id=write_id, attempt=attempt, incarnation=info.incarnation, epoch=info.epoch)
    cutter = StagingEncoder(info)
    with _StagingSender(to.connection, info.name, options) as sender:
        for batch in batches:
            for share in cutter.add(batch.select(to.columns)):
                sender.send(share)
        for share in cutter.rest():
            sender.send(share)
    failpoints.hit("spark.after_staging")
    target = WriteTarget(info.name, info.incarnation, info.epoch)
    return StagedTask(write_id, attempt, cutter.count, cutter.named, target if cutter.count else None)


class _StagingSender:
    """Sends shares in a thread, so that the next share is encoded at the same time."""

    def __init__(self, connection: ConnectionSettings, topic: str, options: StageOptions) -> None:
        self._writes = client(connection).writes
        self._topic, self._options = topic, options
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-stage")
        self._ahead: list[Future[None]] = []

    def send(self, share: Sequence[StagePiece]) -> None:
        if len(self._ahead) >= _REQUESTS_AHEAD:
            self._ahead.pop(0).result()
        self._ahead.append(self._pool.submit(self._writes.stage, self._topic, self._options, share))

    def __enter__(self) -> _StagingSender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            for sent in self._ahead:
                sent.result()


def _kind_of(text: str, write_id: str | None) -> WriteKind:
    try:
        kind = WriteKind(text.lower())
    except ValueError:
        raise InvalidRequest(f"Option `writeKind` must be batch or stream, not {text!r}.") from None
    if kind is WriteKind.STREAM and not write_id:
        raise InvalidRequest("Option `writeKind` is stream, so option `writeId` must name the micro-batch: query/17.")
    return kind


def _decide(to: SinkSettings, kind: WriteKind, messages: Sequence[StagedTask]) -> Written | None:
    topic = to.topic
    failpoints.hit("spark.before_commit")
    staged = [message for message in messages if message.count]
    if not messages:
        return None
    targets = [message.target for message in staged if message.target is not None]
    if targets:
        # Tasks of a stream may have seen different numbers of partitions.
        target = min(targets, key=lambda each: each.epoch)
    else:
        info = to.describe()
        target = WriteTarget(topic, info.incarnation, info.epoch)
    options = DecideOptions(
        write_id=messages[0].write_id,
        attempts=[message.attempt for message in staged],
        count=sum(message.count for message in staged),
        incarnation=target.incarnation,
        epoch=target.epoch,
        kind=kind,
    )
    written = _decided(client(to.connection), topic, options, _growth_rule(staged))
    if not written.won:
        if written.count != options.count:
            raise _lost(topic, options, written)
        _log.warning(
            "write %s was decided before: its %d messages stand, and nothing was added", options.write_id, written.count
        )
    failpoints.hit("spark.after_commit")
    return written


def _lost(topic: str, options: DecideOptions, written: Written) -> Conflict:
    if options.kind is WriteKind.STREAM:
        advice = (
            "The query returned other rows when Spark repeated the micro-batch. Make it deterministic, or start it "
            "with a new checkpoint and, in foreachBatch, another query name."
        )
    else:
        advice = "Use another `writeId` to add these rows."
    return Conflict(
        f"Write '{options.write_id}' into topic '{topic}' was decided before with {written.count} messages. This run "
        f"has {options.count}, and added nothing. {advice}",
        topic=topic,
        write_id=options.write_id,
    )


def _growth_rule(staged: Sequence[StagedTask]) -> GrowthRule:
    """Return what happens to the rows if partitions were added: a partition that a row names stays its partition."""
    count, named = sum(message.count for message in staged), sum(message.named for message in staged)
    if not named:
        return GrowthRule.MOVE
    return GrowthRule.KEEP if named == count else GrowthRule.REFUSE


def _decided(log: Lakelog, topic: str, options: DecideOptions, growth: GrowthRule) -> Written:
    try:
        return _until_known(log, topic, options)
    except EpochChanged as error:
        if growth is GrowthRule.REFUSE:
            raise EpochChanged(
                f"Partitions were added to topic '{topic}' during write '{options.write_id}'. Only some of its rows "
                "name their partition, so the others cannot be moved. Nothing was published. Run the write again, or "
                "name the partition of every row.",
                topic=topic,
                write_id=options.write_id,
            ) from error
        _log.info("Partitions were added to topic '%s' during write %s.", topic, options.write_id)
        return _until_known(log, topic, replace(options, growth=growth))


def _until_known(log: Lakelog, topic: str, options: DecideOptions) -> Written:
    """Return the decision about the write. Repeating it is safe and worthwhile, because all rows are already staged."""
    for left in reversed(range(_DECIDE_TRIES)):
        try:
            return log.writes.decide(topic, options)
        except LakelogError as error:
            if not left or not is_passing(error):
                raise
            _log.warning("write %s: %s; asking again", options.write_id, error)
    raise AssertionError("unreachable")
