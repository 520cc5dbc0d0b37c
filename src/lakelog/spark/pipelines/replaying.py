"""`replay`: publishes a range of a topic into another topic, in shares that are each published once.

A share is a block of offsets in some partitions. Blocks end at fixed offsets, so the write id of a share follows from
the position. A run that was killed repeats its last share under the same id, and a repeated id adds nothing. The
position of a replay with a name is that of its cursor group, as in the client. Live groups are not involved.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakelog import failpoints
from lakelog.client._sync.replay_range import ReplayPosition
from lakelog.client.reading.limits import Time, is_relative, time_of
from lakelog.client.replaying.options import MAX_RATE, MIN_RATE
from lakelog.client.replaying.request import ReplayRange, ReplayRequest
from lakelog.client.values import ReplayedPartition
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_number
from lakelog.model.lake import Plan, PlanOptions
from lakelog.spark.pipelines.runs import RunRecorder, recorded
from lakelog.spark.session import ConnectionSettings, client, connection_to, require_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "replay"
BLOCK = 10_000
"""Messages of a partition in a share. It is fixed: the write ids of two runs must name the same messages."""
PARTITIONS = 5
"""Partitions in a share, fixed for the same reason. More would make the pauses of a rate longer."""

_SESSION_MS = 30 * 60_000
"""A share on a busy cluster may take minutes. Another run with the name takes over without waiting for this time."""
_KEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """The result of a replay into another topic, or of a dry run.

    Attributes:
        topic: The topic that is read.
        to: The topic that is written.
        dry_run: True if this was a dry run, which publishes nothing.
        messages: Messages of the range.
        published: Messages that this run published, or found published by a run that was killed.
        retired: Messages of the range that retention removed before this run read them.
        remaining: Messages of the range that are not published.
    """

    topic: str
    to: str
    dry_run: bool = False
    messages: int = 0
    published: int = 0
    retired: int = 0
    remaining: int = 0

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        return {name: getattr(self, name) for name in ("messages", "published", "retired", "remaining")}


Watch = Callable[[ReplaySummary], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """The messages to replay, the topic to write, and the rate."""

    topic: str
    to: str
    since: Time | None = None
    until: Time | None = None
    name: str | None = None
    rate: float | None = None
    dry_run: bool = False
    is_elsewhere: bool = False
    """The target is in another environment or installation, so it may have the same name."""

    def __post_init__(self) -> None:
        if self.to == self.topic and not self.is_elsewhere:
            raise InvalidRequest("A replay cannot write to the topic that it reads. Use another `to`.")
        if self.rate is not None:
            check_number("rate", self.rate, MIN_RATE, MAX_RATE)
        if self.name is not None and self.until is not None and is_relative(self.until):
            raise InvalidRequest(
                f"A replay with a name needs a fixed `until`, because another run with the name must end at the same "
                f"message. Use a time such as 2026-01-31T12:00:00Z instead of {self.until!r}."
            )

    def request(self) -> ReplayRequest:
        """Return the messages to replay, with both times resolved."""
        since, until = time_of(self.since, "since"), time_of(self.until, "until")
        return ReplayRequest(topic=self.topic, since=since, until=until, name=self.name, to=self.to)


def replay(
    spark: SparkSession,
    topic: str,
    *,
    to: str,
    since: Time | None = None,
    until: Time | None = None,
    name: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    on_progress: Watch | None = None,
    url: str | None = None,
    token: str | None = None,
) -> ReplaySummary:
    """Publish the messages of a range into another topic, each once. Live groups of the topic are unaffected.

    Keys, values, headers, content types, correlation ids, creation and expiry times are copied. The key chooses the
    partition. Messages of a key keep their order if no partitions were added to the topic after the range began.

    With a `name`, a run that was killed or stopped continues at its position when it is called again, and messages that
    it had published are not published again. The position is that of the cursor group `replay-<name>.<to>`; delete the
    group to forget it.

    Args:
        spark: The session.
        topic: The topic to read.
        to: The topic to write. It must exist, and must be another one. Use it again to continue: with another one, the
            same name is another replay.
        since: Begin at the first message that was appended at this time or later: an aware datetime, ISO 8601, or how
            long ago, such as "1 day". Default: the oldest message. A replay that continues uses its position instead.
        until: End before the first message that was appended at this time or later. With a name, it must be a datetime
            or ISO 8601; use it again to continue. Default: all messages that exist when the replay begins; with a
            name, when the first run with the name began.
        name: The name of the replay in the environment, for one topic and one target: characters a-z, 0-9, underscore
            and hyphen, up to 112 together with `to`. Default: None, nothing is stored.
        rate: Messages to publish in a second at most, above zero, on average over shares of up to 50,000 messages (up
            to 10,000 in a partition). Default: None, no limit.
        dry_run: Only count the messages. Default: False.
        on_progress: A function that is called with the result so far after each share.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        InvalidRequest: If an argument is not valid.
        TopicNotFound: If one of the topics does not exist.
        PipelineBusy: If another replay of the topic is running.
        Conflict: If the name is that of a replay of another topic, or if another process runs it now.
    """
    job = ReplayJob(topic=topic, to=to, since=since, until=until, name=name, rate=rate, dry_run=dry_run)
    return run_replay(connection_to(url, token, spark), lambda: spark, job, on_progress)


def run_replay(
    connection: ConnectionSettings,
    session: Callable[[], SparkSession],
    job: ReplayJob,
    on_progress: Watch | None = None,
    target: ConnectionSettings | None = None,
) -> ReplaySummary:
    """Run a replay. `session` returns the Spark session, and is called only if there is something to publish.

    `target` is the connection to the topic that is written, if it is another one.
    """
    request = job.request()
    log = client(connection)
    require_topic(target or connection, job.to)
    position = ReplayPosition(log.group(request.group), log.lake, request, _SESSION_MS)
    if job.dry_run:
        return _summary(job, position.look().partitions)
    with recorded(log, PIPELINE, job.topic) as recorder:
        try:
            return _ReplayRun(connection, target or connection, session, job, position, recorder, on_progress).run()
        finally:
            position.release()


class _ReplayRun:
    """One run of a replay."""

    def __init__(
        self,
        connection: ConnectionSettings,
        target: ConnectionSettings,
        session: Callable[[], SparkSession],
        job: ReplayJob,
        position: ReplayPosition,
        recorder: RunRecorder,
        watch: Watch | None,
    ) -> None:
        self._connection = connection
        self._target = target
        self._session = session
        self._job = job
        self._position = position
        self._recorder = recorder
        self._watch = watch

    def run(self) -> ReplaySummary:
        found = self._position.take()
        run = _run_name(self._job, found)
        left, begun = list(found.partitions), time.monotonic()
        done = _summary(self._job, left)
        self._recorder.update(done.figures())
        while share := next_share(left):
            plan = self._planned(left, share, found.incarnation)
            count = sum(each.end - each.start for each in plan.partitions)
            if count:
                self._publish(plan, write_id_of(run, share))
            failpoints.hit("replay.after_share")
            left = [each._replace(position=share.get(each.partition, each.position)) for each in left]
            self._position.commit({each.partition: each.position for each in left})
            self._position.keep()
            done = _after_share(done, left, count)
            if self._watch is not None:
                self._watch(done)
            self._recorder.update(done.figures())
            if self._job.rate is not None and done.remaining:
                self._pause(begun + done.published / self._job.rate)
        return done

    def _planned(self, left: Sequence[ReplayedPartition], share: Mapping[int, int], incarnation: int) -> Plan:
        """Return where the messages of a share are. Messages that retention removed are left out."""
        starts = {each.partition: each.position for each in left if each.partition in share}
        options = PlanOptions(starts=starts, ends=share, incarnation=incarnation)
        plan = client(self._connection).lake.plan(self._job.topic, options)
        return replace(plan, partitions=tuple(each for each in plan.partitions if each.partition in share))

    def _publish(self, plan: Plan, write_id: str) -> None:
        # Spark is imported only if there is something to publish.
        from lakelog.spark.reading.topics import planned_frame

        frame = planned_frame(self._session(), self._connection, plan)
        # One task reads a partition in order, because the messages of a key must keep theirs.
        ordered = frame.repartition(len(plan.partitions), "partition").sortWithinPartitions("partition", "offset")
        options = {**self._target.options, "topic": self._job.to, "writeId": write_id}
        ordered.write.format("lakelog").mode("append").options(**options).save()

    def _pause(self, until: float) -> None:
        """Wait until a time, and keep the place."""
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _KEEP_SECONDS))
            self._position.keep()


def _run_name(job: ReplayJob, found: ReplayRange) -> str:
    """Return a text that is the same for all runs of a replay. A replay whose group was deleted is another one."""
    run = secrets.token_hex(16) if job.name is None or found.begun_at is None else f"{job.name} {found.begun_at}"
    return f"{job.topic} {found.incarnation} {job.to} {run}"


def next_share(left: Sequence[ReplayedPartition]) -> dict[int, int]:
    """Return where the next share ends, by partition: the partitions with the lowest blocks; nothing at the end."""
    unfinished = sorted(
        (each for each in left if each.position < each.end),
        key=lambda each: (each.position // BLOCK, each.partition),
    )
    return {each.partition: min(each.end, (each.position // BLOCK + 1) * BLOCK) for each in unfinished[:PARTITIONS]}


def write_id_of(run: str, share: Mapping[int, int]) -> str:
    """Return the id of the write of a share.

    It depends on the ends only: retention may remove messages at the begin before a killed run continues.
    """
    text = f"{run} {sorted(share.items())}"
    return f"replay-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _summary(job: ReplayJob, partitions: Sequence[ReplayedPartition]) -> ReplaySummary:
    return ReplaySummary(
        topic=job.topic,
        to=job.to,
        dry_run=job.dry_run,
        messages=sum(each.end - each.start for each in partitions),
        remaining=_remaining(partitions),
    )


def _after_share(done: ReplaySummary, left: Sequence[ReplayedPartition], published: int) -> ReplaySummary:
    remaining = _remaining(left)
    return replace(
        done,
        published=done.published + published,
        retired=done.retired + done.remaining - remaining - published,
        remaining=remaining,
    )


def _remaining(partitions: Sequence[ReplayedPartition]) -> int:
    return sum(each.end - each.position for each in partitions)
