"""Pipeline jobs: the topics, the interval and the Spark session of a pipeline. The command line uses them.

A session takes seconds to start, so it is created only when there is work.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from lakelog.errors import ConfigurationError, LakelogError, PipelineBusy, TopicNotFound, first_line
from lakelog.model.lake import TierOptions
from lakelog.spark.configuring import check_java, check_pyspark, starts_java
from lakelog.spark.pipelines.compact_plan import CompactOptions
from lakelog.spark.pipelines.compacting import CompactSummary, compact
from lakelog.spark.pipelines.compacting import planned as compact_planned
from lakelog.spark.pipelines.tiering import MIN_AGE, SEGMENT_BYTES, TierSummary, explained, no_store, planned, tier
from lakelog.spark.session import ConnectionSettings, client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = (Path(__file__).parent / "log4j2.properties").as_uri()
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING}",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TierJob:
    """The topics to tier, the options, and the interval."""

    topic: str | None = None
    """The topic; None for all topics of the environment."""
    segment_bytes: int = SEGMENT_BYTES
    min_age: timedelta = MIN_AGE
    every_seconds: float | None = None
    dry_run: bool = False

    @property
    def options(self) -> TierOptions:
        return TierOptions(
            segment_bytes=self.segment_bytes,
            min_bytes=self.segment_bytes,
            min_age_ms=self.min_age // timedelta(milliseconds=1),
        )


@dataclass(kw_only=True)
class SparkSessions:
    """The Spark session of a program, created on first use. Without a master, spark-submit decides."""

    name: str
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    on_start: Callable[[], None] = lambda: None

    @cached_property
    def spark(self) -> SparkSession:
        check_pyspark()
        settings = {**self._defaults(), **self.conf}
        if starts_java(settings):
            check_java()
        from pyspark.sql import SparkSession

        self.on_start()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(self.name)
        if self.master is not None:
            builder = builder.master(self.master)
        for name, setting in settings.items():
            builder = builder.config(name, setting)
        try:
            return builder.getOrCreate()
        except Exception as exc:
            told = first_line(exc, 300).rstrip(".")
            raise ConfigurationError(f"Spark could not start: {told}.") from exc

    def _defaults(self) -> dict[str, str]:
        if self.master is None:
            return {}
        if self.master.startswith("local"):
            return {**_QUIET, **_LOCAL}
        # Tasks write to the object store themselves, with the settings of this process.
        keys = {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
        return {**_QUIET, **{f"spark.executorEnv.{name}": text for name, text in keys.items()}}

    @property
    def are_alive(self) -> bool:
        """False if the session was created and can run no more jobs."""
        if "spark" not in self.__dict__:
            return True
        try:
            self.spark.range(1).count()
        except Exception:
            return False
        return True

    def stop(self) -> None:
        if "spark" in self.__dict__:
            self.spark.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactJob:
    """The topics to compact, and the options."""

    topics: tuple[str, ...] = ()
    """The topics; none for all topics of the environment."""
    options: CompactOptions = field(default_factory=CompactOptions)
    dry_run: bool = False


Done = TypeVar("Done", contravariant=True)


class JobListener(Protocol[Done]):
    """Receives the progress of a job."""

    def begun(self, topic: str, plan: Done) -> None:
        """Called when there is work to do."""

    def progress(self, done: Done) -> None: ...

    def ended(self, done: Done) -> None: ...

    def passed(self, topic: str, error: LakelogError) -> None:
        """Called when a topic is left to the next run: another run is active, or a service is unreachable."""


def run_tier(
    connection: ConnectionSettings, sessions: SparkSessions, job: TierJob, report: JobListener[TierSummary]
) -> list[TierSummary]:
    """Run the job once, or until it is stopped, and return the last result of each topic."""
    if job.every_seconds is None:
        return _tier_once(connection, sessions, job, report)
    while True:
        began = time.monotonic()
        try:
            _tier_once(connection, sessions, job, report)
        except LakelogError as error:
            if not error.retryable:
                raise
            report.passed(job.topic or "", error)
        time.sleep(max(0.0, began + job.every_seconds - time.monotonic()))


def _tier_once(
    connection: ConnectionSettings, sessions: SparkSessions, job: TierJob, report: JobListener[TierSummary]
) -> list[TierSummary]:
    log = client(connection)
    topics = [job.topic] if job.topic else [topic.name for topic in log.topics()]
    results = []
    for topic in topics:
        try:
            done = tier_topic(connection, sessions, job, topic, report)
        except (PipelineBusy, TopicNotFound) as error:
            # One topic of many, or one run of many, must not stop the others.
            if job.topic and (job.every_seconds is None or isinstance(error, TopicNotFound)):
                raise
            report.passed(topic, error)
            continue
        if done.is_nothing and job.every_seconds is None:
            done = explained(log, done)
        report.ended(done)
        results.append(done)
    return results


def tier_topic(
    connection: ConnectionSettings, sessions: SparkSessions, job: TierJob, topic: str, report: JobListener[TierSummary]
) -> TierSummary:
    """Tier a topic if there is something to do, and return the result."""
    log = client(connection)
    plan = planned(log, topic, job.options)
    if job.dry_run or plan.is_nothing:
        return plan
    if log.lake.plan(topic).store is None:
        # `tier` checks this too, but a session takes seconds to start.
        raise no_store()
    report.begun(topic, plan)
    return tier(
        sessions.spark,
        topic,
        segment_bytes=job.segment_bytes,
        min_age=job.min_age,
        on_progress=report.progress,
        url=connection.url,
        token=connection.token,
    )


def run_compact(
    connection: ConnectionSettings, sessions: SparkSessions, job: CompactJob, report: JobListener[CompactSummary]
) -> list[CompactSummary]:
    """Run the job once, and return the result of each topic. The first error is raised after the other topics ran."""
    log = client(connection)
    results, failure = [], None
    for topic in job.topics or [topic.name for topic in log.topics()]:
        try:
            done = compact_topic(connection, sessions, job, topic, report)
        except LakelogError as error:
            if len(job.topics) == 1:
                raise
            report.passed(topic, error)
            if not isinstance(error, PipelineBusy):
                failure = failure or error
            continue
        report.ended(done)
        results.append(done)
    if failure is not None:
        raise failure
    return results


def compact_topic(
    connection: ConnectionSettings,
    sessions: SparkSessions,
    job: CompactJob,
    topic: str,
    report: JobListener[CompactSummary],
) -> CompactSummary:
    """Compact a topic if there is something to do, and return the result."""
    plan = compact_planned(client(connection), topic, job.options)
    if job.dry_run or plan.is_nothing:
        return plan
    report.begun(topic, plan)
    return compact(
        sessions.spark,
        topic,
        file_bytes=job.options.file_bytes,
        min_age=job.options.min_age,
        fill_columns=job.options.fill_columns,
        on_progress=report.progress,
        url=connection.url,
        token=connection.token,
    )


@contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGTERM end the block like Ctrl-C, so that the run is recorded."""

    def stop(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
