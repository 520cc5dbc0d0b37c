"""`lakelog pipelines run iceberg` and `run latest`: topics as Iceberg tables, and the newest message of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import print_result, say
from lakelog.cli.pipeline_options import ConfOption, DryOption, EveryOption, MasterOption, parse_every, spark_run
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.model.display import show_count

if TYPE_CHECKING:
    from lakelog.errors import LakelogError
    from lakelog.spark.pipelines.iceberg import IcebergSummary
    from lakelog.spark.pipelines.latest import LatestSummary


def run_iceberg(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...", help="The topics. Default: all, one after another.", autocompletion=complete_topic
        ),
    ] = None,
    every: EveryOption = None,
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Make topics readable as Iceberg tables.

    A table consists of the files that tiering wrote; only metadata is written, and Spark is not needed. Run it after
    tiering. A repeated run does nothing. DuckDB, PyIceberg and others find the tables at /iceberg of the server.
    """
    from lakelog.spark.pipelines.iceberg import IcebergJob
    from lakelog.spark.pipelines.iceberg import run_iceberg as run
    from lakelog.spark.pipelines.jobs import stoppable

    period = parse_every(every)
    job = IcebergJob(topics=tuple(topics or ()), every_seconds=period, dry_run=dry_run)

    def ended(done: IcebergSummary) -> None:
        if period is None or done.commits:
            print_result(json, {"topic": done.topic, "dry_run": done.dry_run, **done.figures()}, table_line(done))

    def passed(topic: str, error: LakelogError) -> None:
        say(f"lakelog: {topic + ': ' if topic else ''}{error.detail}")

    with open_log(url, token) as log, stoppable():
        if not run(log, job, ended, passed) and not json:
            say("There are no topics.")


def run_latest(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)],
    buckets: Annotated[
        int, typer.Option(metavar="N", help="Files of a new table; it cannot be changed later.", min=1, max=10_000)
    ] = 16,
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Keep the newest message of each key of a topic as a table.

    A run reads the messages since the last one. You can stop it at any time. Engines find the table as TOPIC__latest
    at /iceberg of the server.
    """
    from lakelog.spark.pipelines.latest import run_latest as run

    with spark_run(f"lakelog latest {topic}", master, conf, url, token) as (connection, sessions):
        done = run(connection, lambda: sessions.spark, topic, buckets)
    covered = {str(partition): end for partition, end in sorted(done.covered.items())}
    as_of = None if done.as_of is None else done.as_of.isoformat()
    print_result(json, {"topic": topic, **done.figures(), "covered": covered, "as_of": as_of}, latest_line(done))


def latest_line(done: LatestSummary) -> str:
    """Return the line for the result of a key table."""
    lost = f"; retention removed {show_count(done.retired, 'message')} before" if done.retired else ""
    return (
        f"{done.topic}: {show_count(done.keys, 'key')} as of {done.as_of:%Y-%m-%d %H:%M:%S} UTC, after "
        f"{show_count(done.messages, 'new message')}{lost}; version {done.version}"
    )


def table_line(done: IcebergSummary) -> str:
    """Return the line for the result of one topic."""
    if not (done.added or done.removed or done.commits):
        why = "has all verified segments" if done.version else "was not created: the topic has no verified segments"
        return f"{done.topic}: the table {why}"
    verb = "would be" if done.dry_run else "were"
    gone = f", {show_count(done.removed, 'file')} {verb} removed" if done.removed else ""
    return (
        f"{done.topic}: {show_count(done.added, 'segment')} with {show_count(done.messages, 'message')} {verb} added"
        f"{gone}; version {done.version}"
    )
