"""`lakelog pipelines serve`."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.iceberg import latest_line, table_line
from lakelog.cli.output import print_result, say
from lakelog.cli.pipeline_options import (
    ConfOption,
    MasterOption,
    TopicsArgument,
    parse_age,
    spark_run,
)
from lakelog.cli.target import JsonOption, TokenOption, UrlOption
from lakelog.cli.units import parse_duration, parse_size
from lakelog.model.display import show_count, show_size

if TYPE_CHECKING:
    from lakelog.errors import LakelogError, PipelineBusy
    from lakelog.spark.pipelines.serving import ServeSummary
    from lakelog.spark.pipelines.sweeping import SweepSummary

OFF = "never"


def serve(
    topics: TopicsArgument = None,
    tier_every: Annotated[str, typer.Option(metavar="DURATION", help="Interval of tiering, or never.")] = "30s",
    compact_every: Annotated[str, typer.Option(metavar="DURATION", help="Interval of compaction, or never.")] = "1h",
    iceberg_every: Annotated[
        str, typer.Option(metavar="DURATION", help="Interval of Iceberg tables, or never.")
    ] = "30s",
    new_tables: Annotated[
        bool, typer.Option("--new-tables", help="Make each topic an Iceberg table, not only keep existing tables.")
    ] = False,
    latest_every: Annotated[str, typer.Option(metavar="DURATION", help="Interval of key tables, or never.")] = "5m",
    key_table: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Also make the key table of this topic. May be repeated."),
    ] = None,
    sweep_every: Annotated[str, typer.Option(metavar="DURATION", help="Interval of sweeps, or never.")] = "1d",
    segment_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Target size of a segment, in stored bytes.")
    ] = "128MiB",
    file_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest size of a compacted file.")] = "256MiB",
    min_age: Annotated[
        str, typer.Option(metavar="DURATION", help="Tier messages that do not fill a segment at this age.")
    ] = "5m",
    compact_age: Annotated[
        str, typer.Option(metavar="DURATION", help="Compact segments that do not fill a file at this age.")
    ] = "1h",
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Run the pipelines at intervals, until SIGTERM or Ctrl-C.

    A pipeline starts only if there is something to do. If several processes run, one works; another one takes over
    within a minute after it dies. `pipelines runs` shows them, and the messages that wait although they are due.
    """
    from lakelog.spark.pipelines.compact_plan import CompactOptions
    from lakelog.spark.pipelines.serving import PipelineServer, ServeOptions

    options = ServeOptions(
        topics=tuple(topics or ()),
        tier_every=_interval(tier_every),
        compact_every=_interval(compact_every),
        iceberg_every=_interval(iceberg_every),
        new_tables=new_tables,
        latest_every=_interval(latest_every),
        key_tables=tuple(key_table or ()),
        sweep_every=_interval(sweep_every),
        segment_bytes=parse_size(segment_size),
        min_age=parse_age(min_age),
        compact=CompactOptions(file_bytes=parse_size(file_size), min_age=parse_age(compact_age)),
    )
    # SIGTERM is how a service is stopped, and no failure.
    with suppress(SystemExit), spark_run("lakelog pipelines", master, conf, url, token) as run:
        PipelineServer(*run, options, _Lines(json)).run()
    say("Stopped.")


def _interval(text: str) -> timedelta | None:
    return None if text == OFF else parse_duration(text)


class _Lines:
    """A `ServeListener` that prints a line or a JSON object for everything that was done."""

    def __init__(self, json: bool) -> None:
        self._json = json

    def leading(self) -> None:
        say("Serving pipelines. Stop with SIGTERM or Ctrl-C.")

    def waiting(self, error: PipelineBusy) -> None:
        say(f"Waiting to take over: {error.detail}")

    def begun(self, topic: str, plan: ServeSummary) -> None:
        """Do nothing: a line is printed at the end."""

    def progress(self, done: ServeSummary) -> None:
        """Do nothing, as in `begun`."""

    def ended(self, done: ServeSummary) -> None:
        name, line = _line(done)
        print_result(self._json, {"pipeline": name, "topic": done.topic, **done.figures()}, line)

    def swept(self, done: SweepSummary) -> None:
        line = f"deleted {show_count(done.deleted, 'unused file')} ({show_size(done.bytes)})"
        print_result(self._json, {"pipeline": "sweep", **done.figures()}, line)

    def passed(self, topic: str, error: LakelogError) -> None:
        say(f"lakelog: {topic + ': ' if topic else ''}{error.detail}")


def _line(done: ServeSummary) -> tuple[str, str]:
    """Return the name of the pipeline, and what it did."""
    from lakelog.spark.pipelines.iceberg import IcebergSummary
    from lakelog.spark.pipelines.latest import LatestSummary
    from lakelog.spark.pipelines.tiering import TierSummary

    if isinstance(done, IcebergSummary):
        return "iceberg", table_line(done)
    if isinstance(done, LatestSummary):
        return "latest", latest_line(done)
    messages, segments = show_count(done.messages, "message"), show_count(done.segments, "segment")
    if isinstance(done, TierSummary):
        return "tier", f"{done.topic}: tiered {messages} in {segments} ({show_size(done.bytes)})"
    old = show_count(done.replaced, "segment")
    return "compact", f"{done.topic}: rewrote {old} as {done.segments:,} ({show_size(done.bytes)})"
