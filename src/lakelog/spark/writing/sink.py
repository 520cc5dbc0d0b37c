"""Writing to a topic, exactly once: tasks stage their rows, and one decision on the driver says which attempts count.

The first decision about a write id stands, so that a task that is tried again, two copies of a task, a driver that dies
and a re-run with other rows all add nothing. What nobody decided about is removed by the server, a day later.
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
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lakelog import failpoints
from lakelog.client.publishing.staging import StagingEncoder
from lakelog.client.retrying.rule import is_passing
from lakelog.errors import EpochChanged, InvalidRequest, LakelogError
from lakelog.model.write import DecideOptions, StageOptions, StagePiece, Written, check_write_id
from lakelog.spark.options import SPARK_SINK_OPTIONS, WRITE_OPTIONS, known_options, topic_of
from lakelog.spark.session import ConnectionSettings, announced, client, connection_of, short_errors
from lakelog.spark.writing.columns import written_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakelog import Lakelog
    from lakelog.client.values import TopicInfo

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_REQUESTS_AHEAD = 2
"""While one is on its way the next is made ready; more would only fill the memory of a task."""

_DECIDE_TRIES = 4
"""Each with all the repeats of the client. A write of very many partitions may take longer than one."""

_log = logging.getLogger(__name__)
_found: set[tuple[ConnectionSettings, str]] = set()


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The topic as it was when partitions were chosen."""

    topic: str
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """What one attempt of a task has staged; without rows, nothing."""

    write_id: str
    attempt: str
    count: int
    target: WriteTarget | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Where rows go, and which of their columns are written."""

    connection: ConnectionSettings
    topic: str
    columns: Sequence[str]

    def describe(self) -> TopicInfo:
        with announced(self.connection):
            return client(self.connection).topic(self.topic).describe()


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("lakelog").mode("append")`. The writer is made on the driver and pickled to tasks and commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        given, _ = known_options(options, WRITE_OPTIONS, of="a write")
        self._to = _destination(given, schema, overwrite)
        named = given.get("writeid")
        self._write_id = check_write_id(named) if named else f"batch-{secrets.token_hex(16)}"
        # Seen by the driver once, so that all tasks choose partitions alike.
        self._info = self._to.describe()
        if not named:
            sys.stderr.write(f"lakelog: the writeId of this write is {self._write_id}\n")

    @short_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        return _stage(self._to, self._info, self._write_id, iterator)

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _decide(self._to, [each for each in messages if isinstance(each, StagedTask)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what nobody decides about never becomes visible, and attempts that died are not among these."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("lakelog")`. Query and micro-batch are the write id."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        given, _ = known_options(options, WRITE_OPTIONS, of="a write", besides=SPARK_SINK_OPTIONS)
        if given.get("writeid"):
            raise InvalidRequest(
                "A stream makes a write id for each micro-batch by itself. Remove the option `writeId`."
            )
        self._to = _destination(given, schema, overwrite)
        _require_once(self._to)

    @short_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
        if not query or not batch:
            raise InvalidRequest("Spark does not say which query and micro-batch this is; use Spark 4.2 or 4.3.")
        # Looked at by each task, because a stream runs for long: where partitions were added meanwhile, tasks that saw
        # different ones are refused together, and the micro-batch runs again.
        return _stage(self._to, self._to.describe(), f"{query}/{batch}", iterator)

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _decide(self._to, [each for each in messages if isinstance(each, StagedTask)])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing, as in a batch."""


def _destination(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkSettings:
    if overwrite:
        raise InvalidRequest(
            "A topic is append-only. Write with .mode('append'), or a stream with .outputMode('append') or 'update'."
        )
    topic = topic_of(given)
    return SinkSettings(connection=connection_of(given), topic=topic, columns=written_columns(schema))


def _require_once(to: SinkSettings) -> None:
    """Raise `TopicNotFound` before any task runs.

    Spark makes the writer twice in each micro-batch. The processes that do so are used again, and ask only once.
    """
    place = (to.connection, to.topic)
    if place not in _found:
        to.describe()
        _found.add(place)


def _stage(to: SinkSettings, info: TopicInfo, write_id: str, batches: Iterator[pa.RecordBatch]) -> StagedTask:
    """Stages all rows of a task under a name that no other attempt has."""
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    attempt = f"{task}-{secrets.token_hex(8)}"
    wish = StageOptions(write_id=write_id, attempt=attempt, incarnation=info.incarnation, epoch=info.epoch)
    cutter = StagingEncoder(info)
    with _StagingSender(to.connection, info.name, wish) as sender:
        for batch in batches:
            for share in cutter.add(batch.select(to.columns)):
                sender.send(share)
        for share in cutter.rest():
            sender.send(share)
    failpoints.hit("spark.after_staging")
    target = WriteTarget(info.name, info.incarnation, info.epoch)
    return StagedTask(write_id, attempt, cutter.count, target if cutter.count else None)


class _StagingSender:
    """Sends shares in a thread, so that the next is cut and encoded meanwhile."""

    def __init__(self, connection: ConnectionSettings, topic: str, wish: StageOptions) -> None:
        self._writes = client(connection).writes
        self._topic, self._wish = topic, wish
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-stage")
        self._ahead: list[Future[None]] = []

    def send(self, share: Sequence[StagePiece]) -> None:
        if len(self._ahead) >= _REQUESTS_AHEAD:
            self._ahead.pop(0).result()
        self._ahead.append(self._pool.submit(self._writes.stage, self._topic, self._wish, share))

    def __enter__(self) -> _StagingSender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            for sent in self._ahead:
                sent.result()


def _decide(to: SinkSettings, messages: Sequence[StagedTask]) -> Written | None:
    topic = to.topic
    failpoints.hit("spark.before_commit")
    staged = [message for message in messages if message.count]
    if not messages:
        return None
    targets = {message.target for message in staged if message.target is not None}
    if len(targets) > 1:
        raise EpochChanged(
            f"Partitions were added to topic '{topic}' while this was written, and tasks chose by different numbers of "
            "them; nothing is published. Run it again.",
            topic=topic,
        )
    target = next(iter(targets), None)
    log = client(to.connection)
    if target is None:
        info = to.describe()
        target = WriteTarget(topic, info.incarnation, info.epoch)
    wish = DecideOptions(
        write_id=messages[0].write_id,
        attempts=[message.attempt for message in staged],
        count=sum(message.count for message in staged),
        incarnation=target.incarnation,
        epoch=target.epoch,
    )
    written = _until_known(log, topic, wish)
    if not written.won:
        _log.warning(
            "write %s was decided before: its %d messages stand, and nothing was added", wish.write_id, written.count
        )
    failpoints.hit("spark.after_commit")
    return written


def _until_known(log: Lakelog, topic: str, wish: DecideOptions) -> Written:
    """What stands. Safe to repeat, and worth it: all rows are staged already."""
    for left in reversed(range(_DECIDE_TRIES)):
        try:
            return log.writes.decide(topic, wish)
        except LakelogError as error:
            if not left or not is_passing(error):
                raise
            _log.warning("write %s: %s; asking again", wish.write_id, error)
    raise AssertionError("unreachable")
