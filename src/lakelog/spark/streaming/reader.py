"""`spark.readStream.format("lakelog")`: a topic as a stream; with a group, as the only member of that cursor group.

The group's position is committed in `latestOffset`, which Spark calls with the end of a micro-batch only after that
micro-batch is in its commit log. `commit` comes too late, and never for the last micro-batch. Asynchronous progress
tracking breaks this, and does not support such sources. Messages are read by `range_reader`, as in a batch read.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lakelog import Lakelog, failpoints
from lakelog.client.reading.group_view import GroupView
from lakelog.client.reading.read_ranges import ranges_in, ranges_of, require_whole
from lakelog.errors import GroupNotFound, TopicNotFound
from lakelog.model.lake import PlanOptions, Watermarks
from lakelog.model.seek import GroupPosition
from lakelog.spark.reading.batch_reader import SplitPartition, group_view, read_split, split_partitions
from lakelog.spark.reading.range_reader import ReadTarget
from lakelog.spark.session import ConnectionSettings, client, connection_of, short_errors
from lakelog.spark.streaming.handover import Handover
from lakelog.spark.streaming.idle_wait import IdleWait
from lakelog.spark.streaming.member import StreamMember
from lakelog.spark.streaming.naming import NamingPartition
from lakelog.spark.streaming.options import StreamOptions, parse_stream_options
from lakelog.spark.streaming.pacing import Pacing
from lakelog.spark.streaming.planning import (
    Offsets,
    Removed,
    Restart,
    StreamOffset,
    advance,
    begin_at,
    count_of,
    data_loss,
    first_offsets,
    ignoring,
    message_limit,
    past,
    reconcile,
    removal_text,
    removed,
    skipping,
)

_PAUSE_SECONDS = 0.1
"""How often a micro-batch that waits for more messages looks again."""

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that plans in the driver's Python process. Its copies on executors read, and never join the group."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options: StreamOptions = parse_stream_options(options)
        self._connection: ConnectionSettings = connection_of(options)
        self._member: StreamMember | None = None
        self._begun: dict[int, GroupPosition] = {}
        self._is_reconciled = False
        self._has_finished_one = False
        self._initial: dict[str, Any] | None = None
        self._target: Watermarks | None = None
        self._seen: Watermarks | None = None
        self._handover = Handover(self._options.hand_over_bytes)
        self._idle_wait = IdleWait(self._options.idle_wait_ms)
        self._lost_in_plan = 0
        """Removed messages of the planned micro-batch, which the next offset includes."""
        self._pacing = Pacing(least=self._options.min_messages, delay_seconds=self._options.max_delay_seconds)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_member": None}

    # Called by Spark, in the driver -----------------------------------------------------------------------------------

    @short_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Return the group's position, or "not begun".

        A new group is created when the first micro-batch is planned, with the position that is then in Spark's offset
        log. A crash in the first micro-batch therefore changes nothing, and a query that fails earlier leaves nothing
        behind.
        """
        if self._options.group is None or not self._has_position(self._options.group):
            initial = StreamOffset(topic=self._options.topic).to_json()
        else:
            positions = self._join(None)
            incarnation = self._log.lake.watermarks(self._options.topic).incarnation
            at = {partition: position.offset for partition, position in positions.items()}
            initial = self._offset(incarnation, at, at).to_json()
        failpoints.hit("spark.after_initial_offset")
        self._initial = initial
        return initial

    @short_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        reached = StreamOffset.of(start, self._options.topic)
        is_new = start == self._initial and not self._is_reconciled
        self._commit(reached)
        marks = self._watermarks(reached)
        options = self._resolved(marks) if is_new or reached.incarnation is None else self._options
        first = first_offsets(options, marks) if reached.incarnation is None else {}
        due = begin_at(reached, first, marks.ends)
        begin = past(due, marks.starts)
        if is_new:
            self._tell(options, reached, begin, marks)
        if self._is_waiting(reached, begin, marks):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = advance(begin, marks.ends, message_limit(begin, marks, self._options.max_bytes, most))
        if reached.incarnation is not None and end == due:
            self._idle_wait.end_idle()
            return start
        lost = reached.lost + self._lost_in_plan + self._skip(removed(due, marks.starts))
        self._lost_in_plan = 0
        read_at = None if self._options.group is None else marks.now
        if not self._needs_a_task:
            self._handover.start(self._small(replace(self._offset(marks.incarnation, begin, end), read_at=read_at)))
        if self._member is not None:
            self._member.confirm()
        return replace(self._offset(marks.incarnation, begin, end), read_at=read_at, lost=lost).to_json()

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        until = StreamOffset.of(end, self._options.topic)
        self._join(Restart(planned=until, finished=False))
        failpoints.hit("spark.before_planning")
        small = self._small(until)
        if not self._needs_a_task and self._handover.finish(small):
            failpoints.hit("spark.after_planning")
            self.__class__ = HandingReader
            # Spark reads it in a task if it loses the rows.
            return [SplitPartition(self._lenient(small.place), small.split)]
        options = PlanOptions(starts=until.begin, ends=until.end, incarnation=until.incarnation)
        plan = self._log.lake.plan(self._options.topic, options)
        starts = {one.partition: one.log_start for one in plan.partitions}
        # Set, not added: Spark may plan a micro-batch twice.
        self._lost_in_plan = self._skip(removed(until.begin, starts, until.end))
        require_whole(plan, past(until.begin, starts), past(until.end, starts))
        failpoints.hit("spark.after_planning")
        # A partition that was added later is read by the next micro-batch.
        wanted = [read_range for read_range in ranges_of(plan) if read_range.partition in until.end]
        place = ReadTarget.of(self._connection, plan, self._options.store, self._options.columns)
        return self._naming(split_partitions(replace(self._lenient(place), view=self._view(until)), wanted), small)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._options.max_messages is None else ReadMaxRows(self._options.max_messages)

    @short_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log.lake.watermarks(self._options.topic)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the topic when it was last read, for the progress of the query."""
        if self._seen is None:
            return None
        seen = self._seen
        return StreamOffset(topic=self._options.topic, incarnation=seen.incarnation, end=seen.ends).to_json()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because `latestOffset` commits."""

    def stop(self) -> None:
        member, self._member = self._member, None
        if member is None:
            return
        if self._has_finished_one:
            member.leave()
        else:
            member.withdraw()

    # Called by Spark, in tasks ----------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SplitPartition):
            failpoints.hit("spark.in_task")
        if isinstance(partition, NamingPartition):
            partition.member.report()
        with short_errors():
            yield from read_split(partition)

    # Parts of the above -----------------------------------------------------------------------------------------------

    @property
    def _log(self) -> Lakelog:
        return client(self._connection)

    def _offset(self, incarnation: int, begin: Offsets, end: Offsets) -> StreamOffset:
        epochs = {} if self._member is None else self._member.epochs
        return StreamOffset(topic=self._options.topic, incarnation=incarnation, begin=begin, end=end, epochs=epochs)

    def _skip(self, lost: Removed) -> int:
        """Return the number of removed messages. Raise an error if the query must not skip them."""
        if not lost:
            return 0
        if self._options.fail_on_data_loss:
            raise data_loss(self._options.topic, lost)
        _log.warning("%s The query continues at the oldest messages.", removal_text(self._options.topic, lost))
        return count_of(lost)

    def _lenient(self, place: ReadTarget) -> ReadTarget:
        """Return the target for tasks, which skip messages that were removed since the plan, if that is allowed."""
        return replace(place, skips_removed=not self._options.fail_on_data_loss)

    def _view(self, until: StreamOffset) -> GroupView | None:
        """Return the view of the group at the time of the plan, or now if a version without that time planned it."""
        group = self._options.group
        if group is None:
            return None
        if until.read_at is None:
            return group_view(self._log.lake, self._options.topic, group)
        return GroupView(group=group, at=until.read_at)

    def _has_position(self, group: str) -> bool:
        try:
            return bool(self._log.group(group).positions(self._options.topic))
        except GroupNotFound:
            return False

    def _join(self, restart: Restart | None) -> dict[int, GroupPosition]:
        """Join the group once, and check that checkpoint and group agree before anything is planned."""
        if self._options.group is None:
            return {}
        if restart is None:
            self._enter({})
        elif not self._is_reconciled:
            marks = self._log.lake.watermarks(self._options.topic)
            self._same(restart.planned, marks)
            # A partition that was added later begins at 0.
            at = {partition: restart.goes_on_at.get(partition, 0) for partition in marks.ends}
            self._enter(past(at, marks.starts))
            reconcile(self._options.group, restart, self._begun, marks.starts)
            self._is_reconciled = True
        return self._begun

    def _enter(self, at: Offsets) -> None:
        if self._member is None:
            member = StreamMember(self._log, self._options)
            self._begun = member.begin(at)
            self._member = member
            self._leave_when_ended()

    def _small(self, until: StreamOffset) -> SplitPartition:
        """Return a micro-batch as one partition, which is read through the server."""
        place = ReadTarget(
            connection=self._connection,
            topic=self._options.topic,
            incarnation=until.incarnation or 0,
            columns=self._options.columns,
            view=self._view(until),
        )
        ranges = {number: (until.begin.get(number, 0), end) for number, end in until.end.items()}
        return SplitPartition(place, tuple(ranges_in(ranges)))

    @property
    def _needs_a_task(self) -> bool:
        """Whether a task still has to report the query to its group, so that the micro-batch is not handed over."""
        return self._options.group is not None and (self._member is None or not self._member.is_named)

    def _naming(self, parts: list[SplitPartition], small: SplitPartition) -> list[SplitPartition]:
        """Let the first task report the query, once; also a task of an empty micro-batch."""
        if self._member is None or not self._needs_a_task:
            return parts
        first, *others = parts or [SplitPartition(small.place, ())]
        return [NamingPartition(first, self._member.name_by_task(self._connection)), *others]

    def _resolved(self, marks: Watermarks) -> StreamOptions:
        """Return the options with the offsets at which the messages of the start time begin."""
        since = self._options.start_time
        if since is None:
            return self._options
        plan = self._log.lake.plan(self._options.topic, PlanOptions(since=since))
        found = {each.partition: min(each.start, marks.ends.get(each.partition, 0)) for each in plan.partitions}
        return replace(self._options, start_offsets={**found, **self._options.start_offsets})

    def _is_waiting(self, reached: StreamOffset, begin: Offsets, marks: Watermarks) -> bool:
        """Return whether the next micro-batch waits for more messages; if it does, pause instead of being asked again.

        The first micro-batch of a query and an availableNow run do not wait.
        """
        if reached.incarnation is None or self._target is not None:
            return False
        count = sum(max(0, end - begin.get(partition, end)) for partition, end in marks.ends.items())
        if not count or self._pacing.starts(count, time.monotonic()):
            return False
        time.sleep(_PAUSE_SECONDS)
        return True

    def _tell(self, options: StreamOptions, reached: StreamOffset, begin: Offsets, marks: Watermarks) -> None:
        """Log a warning about where a query without a checkpoint starts, if that may be unexpected."""
        notice = skipping(options, begin, marks) if reached.incarnation is None else ignoring(options, begin, marks)
        if notice is not None:
            _log.warning(notice)

    def _leave_when_ended(self) -> None:
        """Leave the group on SIGTERM, by which Spark ends this process without calling `stop`."""
        if threading.current_thread() is not threading.main_thread():
            return

        def end(number: int, frame: FrameType | None) -> None:
            # The signal comes twice, and a second one during the first would deadlock.
            signal.signal(number, signal.SIG_IGN)
            self.stop()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        signal.signal(signal.SIGTERM, end)

    def _commit(self, reached: StreamOffset) -> None:
        if reached.incarnation is None:
            return
        self._has_finished_one = True
        self._join(Restart(planned=reached, finished=True))
        if self._member is None:
            return
        failpoints.hit("spark.before_group_commit")
        self._member.commit(reached.end)
        failpoints.hit("spark.after_group_commit")

    def _watermarks(self, reached: StreamOffset) -> Watermarks:
        """Return how far this run may read.

        An availableNow run reads to its target; another run waits for messages and reads to the end.
        """
        if self._target is not None:
            marks = self._target
        else:
            wait = 0.0 if reached.incarnation is None else self._idle_wait.begin()
            marks = self._log.lake.watermarks(self._options.topic, reached.end, wait)
        self._same(reached, marks)
        self._seen = marks
        return marks

    def _same(self, known: StreamOffset, marks: Watermarks) -> None:
        if known.incarnation is not None and known.incarnation != marks.incarnation:
            raise TopicNotFound(
                f"Topic '{self._options.topic}' was deleted and created again since this query began. Its offsets are "
                "those of other messages. Start the query with a new checkpoint"
                + ("." if self._options.group is None else ". Its group starts again in the new topic too."),
                topic=self._options.topic,
            )


class HandingReader(StreamReader, _SimpleStreamReaderWrapper):
    """A reader between `partitions` and `getCache`, which Spark calls only on this class. See `handover`."""

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self.__class__ = StreamReader  # type: ignore[assignment]
        return self._handover.take()
