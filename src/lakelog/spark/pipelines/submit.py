"""Pipelines as a program for spark-submit. It prints a JSON line per topic and run to stdout, and errors to stderr.

spark-submit --master spark://host:7077 …/lakelog/spark/pipelines/submit.py tier --topic orders
python -m lakelog.spark.pipelines.submit tier --topic orders --master 'local[2]'
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import timedelta

from lakelog.errors import LakelogError
from lakelog.spark.pipelines.jobs import JobListener, SparkSessions, TierJob, run_tier, stoppable
from lakelog.spark.pipelines.sweeping import sweep
from lakelog.spark.pipelines.tiering import MIN_AGE, SEGMENT_BYTES, TierSummary
from lakelog.spark.session import ConnectionSettings, connection_to


class _PrintedProgress(JobListener):
    def begun(self, topic: str, plan: TierSummary) -> None:
        """Do nothing: a line is printed when a topic is finished."""

    def progress(self, done: TierSummary) -> None:
        """Do nothing, as in `begun`."""

    def ended(self, done: TierSummary) -> None:
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
    parser.add_argument("pipeline", choices=["tier", "sweep"])
    parser.add_argument("--topic", help="only this topic; default: all topics")
    parser.add_argument("--url", help="the URL of the server; default: LAKELOG_URL")
    parser.add_argument("--token", help="the token; default: LAKELOG_TOKEN")
    parser.add_argument("--master", help="the Spark master; default: that of spark-submit")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="again and again")
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES)
    parser.add_argument("--min-age", type=float, default=MIN_AGE.total_seconds(), metavar="SECONDS")
    parser.add_argument("--dry-run", action="store_true")
    return parser.parse_args(arguments)


def _job(given: argparse.Namespace) -> TierJob:
    return TierJob(
        topic=given.topic,
        segment_bytes=given.segment_bytes,
        min_age=timedelta(seconds=given.min_age),
        every_seconds=given.every,
        dry_run=given.dry_run,
    )


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
