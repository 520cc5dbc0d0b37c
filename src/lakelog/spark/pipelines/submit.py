"""Pipelines as a program for spark-submit. It prints a JSON line per topic and run to stdout, and errors to stderr.

spark-submit --master spark://host:7077 …/lakelog/spark/pipelines/submit.py tier --topic orders
python -m lakelog.spark.pipelines.submit tier --topic orders --master 'local[2]'
spark-submit … submit.py compact --topic orders
spark-submit … submit.py replay --topic orders --to orders-copy --name copy-2026
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import timedelta

from lakelog.errors import LakelogError
from lakelog.spark.pipelines.compact_plan import FILE_BYTES, QUIET, CompactOptions
from lakelog.spark.pipelines.compacting import CompactSummary
from lakelog.spark.pipelines.jobs import (
    CompactJob,
    JobListener,
    SparkSessions,
    TierJob,
    run_compact,
    run_tier,
    stoppable,
)
from lakelog.spark.pipelines.replaying import ReplayJob, run_replay
from lakelog.spark.pipelines.sweeping import sweep
from lakelog.spark.pipelines.tiering import MIN_AGE, SEGMENT_BYTES, TierSummary
from lakelog.spark.session import ConnectionSettings, connection_to


class _PrintedProgress(JobListener[TierSummary | CompactSummary]):
    def begun(self, topic: str, plan: TierSummary | CompactSummary) -> None:
        """Do nothing: a line is printed when a topic is finished."""

    def progress(self, done: TierSummary | CompactSummary) -> None:
        """Do nothing, as in `begun`."""

    def ended(self, done: TierSummary | CompactSummary) -> None:
        _print({"topic": done.topic, "dry_run": done.dry_run, **done.figures()})

    def passed(self, topic: str, error: LakelogError) -> None:
        _say(f"{topic}: {error.detail}" if topic else error.detail)


def main(arguments: list[str] | None = None) -> int:
    """Run the pipeline, and return the exit code."""
    given = _parsed(arguments)
    sessions = SparkSessions(name=f"lakelog {given.pipeline} {given.topic or ''}".strip(), master=given.master)
    try:
        with stoppable():
            connection = connection_to(given.url, given.token)
            if given.pipeline == "sweep":
                _sweep(connection, given.dry_run)
            elif given.pipeline == "replay":
                _replay(connection, sessions, given)
            elif given.pipeline == "compact":
                run_compact(connection, sessions, _compact_job(given), _PrintedProgress())
            else:
                run_tier(connection, sessions, _job(given), _PrintedProgress())
        return 0
    except LakelogError as error:
        _say(error.detail)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        sessions.stop()


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lakelog.spark.pipelines.submit", description="Run a pipeline of Lakelog with spark-submit."
    )
    parser.add_argument("pipeline", choices=["tier", "compact", "sweep", "replay"])
    parser.add_argument("--topic", help="only this topic; default: all topics. A replay needs it.")
    parser.add_argument("--url", help="the URL of the server; default: LAKELOG_URL")
    parser.add_argument("--token", help="the token; default: LAKELOG_TOKEN")
    parser.add_argument("--master", help="the Spark master; default: that of spark-submit")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="again and again")
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES)
    parser.add_argument("--file-bytes", type=int, default=FILE_BYTES, help="largest size of a compacted file")
    parser.add_argument(
        "--min-age",
        type=float,
        metavar="SECONDS",
        help=f"default: {MIN_AGE.total_seconds():.0f} for tier, {QUIET.total_seconds():.0f} for compact",
    )
    parser.add_argument("--dry-run", action="store_true")
    replaying = parser.add_argument_group("replay")
    replaying.add_argument("--to", metavar="TOPIC", help="the topic to write")
    replaying.add_argument("--since", metavar="TIME", help="begin with messages appended at this time or later")
    replaying.add_argument("--until", metavar="TIME", help="end before messages appended at this time or later")
    replaying.add_argument("--name", help="store the position under this name")
    replaying.add_argument("--rate", type=float, metavar="PER_SECOND", help="publish at most this many, on average")
    given = parser.parse_args(arguments)
    if given.pipeline == "replay" and not (given.topic and given.to):
        parser.error("replay needs --topic and --to")
    return given


def _job(given: argparse.Namespace) -> TierJob:
    return TierJob(
        topic=given.topic,
        segment_bytes=given.segment_bytes,
        min_age=_age(given, MIN_AGE),
        every_seconds=given.every,
        dry_run=given.dry_run,
    )


def _compact_job(given: argparse.Namespace) -> CompactJob:
    options = CompactOptions(file_bytes=given.file_bytes, min_age=_age(given, QUIET))
    return CompactJob(topics=(given.topic,) if given.topic else (), options=options, dry_run=given.dry_run)


def _age(given: argparse.Namespace, default: timedelta) -> timedelta:
    return default if given.min_age is None else timedelta(seconds=given.min_age)


def _replay(connection: ConnectionSettings, sessions: SparkSessions, given: argparse.Namespace) -> None:
    names = ("topic", "to", "since", "until", "name", "rate", "dry_run")
    job = ReplayJob(**{name: getattr(given, name) for name in names})
    done = run_replay(connection, lambda: sessions.spark, job)
    _print({"topic": done.topic, "to": done.to, "dry_run": done.dry_run, **done.figures()})


def _sweep(connection: ConnectionSettings, dry_run: bool) -> None:
    swept = sweep(dry_run=dry_run, url=connection.url, token=connection.token)
    _print({"dry_run": swept.dry_run, **swept.figures()})


def _print(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"lakelog: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
