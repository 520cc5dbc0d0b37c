"""`copy`: adds the messages of a topic to another topic, also of another environment or installation, each once.

If the target is empty, the messages are loaded with their times, as in `backfill`. Otherwise they are published, as in
`replay`. The module decides which, and has no mechanism of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.client.reading.limits import Time, time_of
from lakelog.errors import InvalidRequest
from lakelog.model.lake import PlanOptions
from lakelog.spark.pipelines.backfill_rows import RowOptions
from lakelog.spark.pipelines.backfilling import BackfillJob, BackfillSummary, Watch, is_loadable, run_backfill
from lakelog.spark.pipelines.replaying import ReplayJob, ReplaySummary, run_replay
from lakelog.spark.session import ConnectionSettings, client, connection_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """The messages to copy, and where they go."""

    topic: str
    to: str
    since: Time | None = None
    until: Time | None = None
    name: str | None = None
    history: bool | None = None
    rate: float | None = None
    dry_run: bool = False


def copy(
    spark: SparkSession,
    topic: str,
    *,
    to: str,
    since: Time | None = None,
    until: Time | None = None,
    name: str | None = None,
    history: bool | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    on_progress: Watch | None = None,
    from_url: str | None = None,
    from_token: str | None = None,
    url: str | None = None,
    token: str | None = None,
) -> BackfillSummary:
    """Add the messages of a topic to another topic, each once: of this environment, or of another installation.

    Into an empty topic, messages are loaded with their times of appending. With the same number of partitions, each
    message stays in its partition, in the same order; otherwise its key chooses the partition. Into a topic with
    messages, they are published like a `replay`. Keys, values, headers, content types, correlation ids, creation and
    expiry times are copied; offsets are new.

    With a `name`, a run that was killed continues when it is called again, and adds no message twice.

    Args:
        spark: The session.
        topic: The topic to read.
        to: The topic to write, which must exist.
        since: Begin at the first message that was appended at this time or later: an aware datetime, ISO 8601, or how
            long ago, such as "1 day". Default: the oldest message.
        until: End before the first message that was appended at this time or later. Default: all messages that exist
            when their partition is copied.
        name: The name of the copy in the topic that is written. Default: None, a run that fails cannot be continued.
        history: Load the messages with their times. Default: if that is possible and there is no rate.
        rate: Messages to publish in a second at most, above zero, on average. Default: None, no limit.
        dry_run: Only count the messages. Default: False.
        on_progress: A function that is called with the result so far after each part.
        from_url: The URL of the server with the topic to read. Default: `url`.
        from_token: The token for it. Default: `token`, if `from_url` is not given.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        InvalidRequest: If an argument is not valid.
        TopicNotFound: If one of the topics does not exist.
        PipelineBusy: If another copy into the topic, or another replay of it, is running.
        Conflict: If messages were published to a partition while its history was written.
    """
    target = connection_to(url, token, spark)
    source = source_of(target, from_url, from_token)
    job = CopyJob(topic=topic, to=to, since=since, until=until, name=name, history=history, rate=rate, dry_run=dry_run)
    return run_copy(source, target, lambda: spark, job, on_progress)


def source_of(target: ConnectionSettings, url: str | None, token: str | None) -> ConnectionSettings:
    """Return the connection to the topic that is read."""
    if url is None and token is None:
        return target
    return connection_to(url or target.url, token)


def run_copy(
    source: ConnectionSettings,
    target: ConnectionSettings,
    session: Callable[[], SparkSession],
    job: CopyJob,
    on_progress: Watch | None = None,
) -> BackfillSummary:
    """Run a copy, and return its result."""
    if source == target and job.topic == job.to:
        raise InvalidRequest("A topic cannot be copied into itself. Use another `to`.")
    log = client(target)
    info, plan = log.topic(job.to).describe(), log.lake.plan(job.to)
    known = log.lake.find_load(job.to, job.name) if job.name is not None else []
    options = PlanOptions(since=time_of(job.since, "since"), until=time_of(job.until, "until"))
    found = client(source).lake.plan(job.topic, options)
    load = BackfillJob(
        topic=job.to,
        rows=RowOptions(
            time="appended_at", order=("partition", "offset"), keeps_partition=len(found.partitions) == info.partitions
        ),
        name=job.name,
        history=job.history,
        rate=job.rate,
        dry_run=job.dry_run,
        origin=f"{source.place} {job.topic} {found.incarnation} {job.since} {job.until}",
    )
    if not is_loadable(info, plan, load, known):
        return _published(source, target, session, job, on_progress)
    from pyspark.sql import functions as F

    from lakelog.spark.reading.topics import planned_frame

    # A copy that was redriven for a group is not a message of its own.
    frame = planned_frame(session(), source, found).where(F.col("target_group").isNull())
    return run_backfill(target, frame, load, on_progress)


def _published(
    source: ConnectionSettings,
    target: ConnectionSettings,
    session: Callable[[], SparkSession],
    job: CopyJob,
    on_progress: Watch | None,
) -> BackfillSummary:
    replayed = ReplayJob(
        topic=job.topic,
        to=job.to,
        since=job.since,
        until=job.until,
        name=job.name,
        rate=job.rate,
        dry_run=job.dry_run,
        is_elsewhere=source != target,
    )

    def told(done: ReplaySummary) -> BackfillSummary:
        return BackfillSummary(
            topic=done.to,
            dry_run=done.dry_run,
            messages=done.messages,
            added=done.published,
            known=done.messages - done.remaining - done.published - done.retired,
            remaining=done.remaining,
        )

    def watch(done: ReplaySummary) -> None:
        if on_progress is not None:
            on_progress(told(done))

    return told(run_replay(source, session, replayed, watch, target))
