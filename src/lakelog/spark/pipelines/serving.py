"""`pipelines serve`: runs the pipelines at intervals, each when there is something to do, until it is stopped.

They run in the order in which each needs the one before it: tiering, compaction, Iceberg tables, key tables, sweeps.
Messages that retention removed therefore leave a table, and its old snapshots expire, before the sweep looks for unused
files.

One process works at a time: the one whose run of the pipeline `serve` is recorded. Others wait, and take over when that
run ends or stops reporting. The election saves work only; each step is safe beside another run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from lakelog.errors import ConfigurationError, LakelogError, PipelineBusy, PipelineRunOver, Unavailable, first_line
from lakelog.model.pipeline import RunState
from lakelog.spark.pipelines.compact_plan import CompactOptions
from lakelog.spark.pipelines.compacting import CompactSummary
from lakelog.spark.pipelines.iceberg import IcebergSummary, iceberg_topic
from lakelog.spark.pipelines.jobs import CompactJob, JobListener, SparkSessions, TierJob, compact_topic, tier_topic
from lakelog.spark.pipelines.latest import LatestSummary, run_latest, uncovered
from lakelog.spark.pipelines.runs import RunRecorder, recorded
from lakelog.spark.pipelines.sweeping import PIPELINE as SWEEP
from lakelog.spark.pipelines.sweeping import SweepSummary, sweep
from lakelog.spark.pipelines.tiering import MIN_AGE, SEGMENT_BYTES, TierSummary, tierable
from lakelog.spark.session import ConnectionSettings, client

PIPELINE = "serve"
TICK = timedelta(seconds=1)
STANDBY = timedelta(seconds=5)
"""The interval at which a waiting process tries to take over."""
SWEEP_LOOK = timedelta(minutes=10)
"""The interval at which the process looks whether a sweep is due, also after one that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The topics and intervals. None turns a pipeline off.

    Attributes:
        topics: The topics to tier and compact. Default: all, also those that are created later.
        tier_every: The interval of tiering. Default: 30 seconds.
        compact_every: The interval of compaction. Default: one hour.
        iceberg_every: The interval at which Iceberg tables are brought to their topics. Default: 30 seconds.
        new_tables: Create the table of each topic that has none. Default: False, only existing tables are kept.
        latest_every: The interval at which key tables are brought to their topics. Default: 5 minutes.
        key_tables: Topics whose key tables are created if they have none. Existing key tables are kept without it.
        sweep_every: The interval of sweeps, counted from the last recorded one. Default: 24 hours.
        segment_bytes: The target size of a segment, as in `tier`.
        min_age: The age at which a remainder is tiered, as in `tier`.
        compact: The options of compaction.
    """

    topics: tuple[str, ...] = ()
    tier_every: timedelta | None = timedelta(seconds=30)
    compact_every: timedelta | None = timedelta(hours=1)
    iceberg_every: timedelta | None = timedelta(seconds=30)
    new_tables: bool = False
    latest_every: timedelta | None = timedelta(minutes=5)
    key_tables: tuple[str, ...] = ()
    sweep_every: timedelta | None = timedelta(hours=24)
    segment_bytes: int = SEGMENT_BYTES
    min_age: timedelta = MIN_AGE
    compact: CompactOptions = field(default_factory=CompactOptions)


ServeSummary = TierSummary | CompactSummary | IcebergSummary | LatestSummary


class ServeListener(JobListener[ServeSummary], Protocol):
    """Receives what the process does."""

    def leading(self) -> None:
        """Called when this process begins to work."""

    def waiting(self, error: PipelineBusy) -> None:
        """Called once when another process works."""

    def swept(self, done: SweepSummary) -> None:
        """Called after a sweep that deleted files."""


class PipelineServer:
    """One process that serves pipelines. `run` returns only by an exception, such as that of SIGTERM."""

    def __init__(
        self,
        connection: ConnectionSettings,
        sessions: SparkSessions,
        options: ServeOptions,
        report: ServeListener,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._sessions = sessions
        self._options = options
        self._report = report
        self._sleep = sleep
        done = ("tiered", "compacted", "versions", "merged", "deleted", "failures")
        self._figures = dict.fromkeys((*done, "waiting", "unmerged"), 0)

    def run(self) -> None:
        log = client(self._connection)
        is_waiting = False
        while True:
            try:
                with recorded(log, PIPELINE) as recorder:
                    is_waiting = False
                    self._report.leading()
                    if self._lead(recorder):
                        return
            except PipelineBusy as error:
                if not is_waiting:
                    self._report.waiting(error)
                is_waiting = True
            except PipelineRunOver as error:
                # This process did not report for long, and another one may have taken over.
                self._report.passed("", error)
            except LakelogError as error:
                if not error.retryable:
                    raise
                self._report.passed("", error)
            self._sleep(STANDBY.total_seconds())

    def _lead(self, recorder: RunRecorder) -> bool:
        """Work until a signal arrives, and return True: then the run is recorded as done, and not as failed."""
        steps = {
            "tier": (self._options.tier_every, self._tier),
            "compact": (self._options.compact_every, self._compact),
            "iceberg": (self._options.iceberg_every, self._iceberg),
            "latest": (self._options.latest_every, self._latest),
            "sweep": (self._options.sweep_every and min(self._options.sweep_every, SWEEP_LOOK), self._sweep),
        }
        due = dict.fromkeys(steps, 0.0)
        try:
            while True:
                for name, (every, step) in steps.items():
                    if every is not None and time.monotonic() >= due[name]:
                        due[name] = time.monotonic() + every.total_seconds()
                        self._try("", step)
                        recorder.update(self._figures)
                recorder.update(self._figures)
                self._sleep(TICK.total_seconds())
        except (KeyboardInterrupt, SystemExit):
            return True

    def _tier(self) -> None:
        """Tier what is due, and note how many messages wait although they are due."""
        options, waiting = self._options, 0
        job = TierJob(segment_bytes=options.segment_bytes, min_age=options.min_age)
        for topic in self._topics():

            def one(topic: str = topic) -> None:
                done = tier_topic(self._connection, self._sessions, job, topic, self._report)
                if not done.is_nothing:
                    self._figures["tiered"] += done.messages
                    self._report.ended(done)

            if not self._try(topic, one):
                waiting += self._untiered(topic, job)
        self._figures["waiting"] = waiting

    def _untiered(self, topic: str, job: TierJob) -> int:
        try:
            return sum(each.end - each.first for each in tierable(client(self._connection), topic, job.options))
        except LakelogError:
            return 0

    def _compact(self) -> None:
        job = CompactJob(options=self._options.compact)
        for topic in self._topics():

            def one(topic: str = topic) -> None:
                done = compact_topic(self._connection, self._sessions, job, topic, self._report)
                if not done.is_nothing:
                    self._figures["compacted"] += done.replaced
                    self._report.ended(done)

            self._try(topic, one)

    def _iceberg(self) -> None:
        log = client(self._connection)
        for topic in self._topics():

            def one(topic: str = topic) -> None:
                done = iceberg_topic(log, topic, creates=self._options.new_tables)
                if done.commits:
                    self._figures["versions"] += done.commits
                    self._report.ended(done)

            self._try(topic, one)

    def _latest(self) -> None:
        """Bring key tables to their topics, and note how many messages they still lack."""
        log, lacking = client(self._connection), 0
        for topic in dict.fromkeys([*self._topics(), *self._options.key_tables]):
            missing: int | None = 0

            def one(topic: str = topic) -> None:
                nonlocal missing
                missing = uncovered(log, topic)
                if missing or (missing is None and topic in self._options.key_tables):
                    done = run_latest(self._connection, lambda: self._sessions.spark, topic)
                    self._figures["merged"] += done.messages
                    self._report.ended(done)

            if not self._try(topic, one):
                lacking += missing or 0
        self._figures["unmerged"] = lacking

    def _sweep(self) -> None:
        """Sweep, unless the last sweep of the environment was less than the interval ago and did not fail."""
        assert self._options.sweep_every is not None
        for last in client(self._connection).pipelines.list(SWEEP, limit=1):
            is_good = last.state in (RunState.RUNNING, RunState.DONE)
            if is_good and datetime.now(UTC) - last.started_at < self._options.sweep_every:
                return
        done = sweep(url=self._connection.url, token=self._connection.token)
        self._figures["deleted"] += done.deleted
        if done.deleted:
            self._report.swept(done)

    def _topics(self) -> Sequence[str]:
        return self._options.topics or [info.name for info in client(self._connection).topics()]

    def _try(self, topic: str, step: Callable[[], None]) -> bool:
        """Return whether the step succeeded. A failure is reported, and must not stop the other steps.

        Only a program that starts again gets another Spark, so this one ends with its Spark.
        """
        error: LakelogError
        try:
            step()
        except (ConfigurationError, PipelineRunOver):
            raise
        except LakelogError as exc:
            error = exc
        except Exception as exc:
            if not self._sessions.are_alive:
                raise
            error = Unavailable(f"{type(exc).__name__}: {first_line(exc, 300)}")
        else:
            return True
        self._figures["failures"] += not isinstance(error, PipelineBusy)
        self._report.passed(topic, error)
        return False
