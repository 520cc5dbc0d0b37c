"""`lakelog pipelines run backfill` and `run copy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import print_result
from lakelog.cli.pipeline_options import (
    ConfOption,
    DryOption,
    MasterOption,
    RateOption,
    SinceOption,
    ToOption,
    spark_run,
)
from lakelog.cli.pipeline_screen import MessageBar, stopped_line
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic
from lakelog.cli.units import parse_rate
from lakelog.errors import InvalidRequest
from lakelog.model.display import show_count

if TYPE_CHECKING:
    from lakelog.spark.pipelines.backfilling import BackfillSummary

NameOption = Annotated[str | None, typer.Option(help="A run with the same name continues, and adds nothing twice.")]
LoadOption = Annotated[
    bool, typer.Option("--load", help="Load with original times, or fail. Default: if the topic has no messages.")
]
PublishOption = Annotated[bool, typer.Option("--publish", help="Publish, also into a topic without messages.")]


def run_backfill(
    topic: Annotated[str, typer.Argument(help="The topic to write.", autocompletion=complete_topic)],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Parquet files or folders, also s3a://….")],
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the key.")] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column with the original time.")] = None,
    order: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Order rows with equal times. May be repeated.")
    ] = None,
    name: NameOption = None,
    load: LoadOption = False,
    publish: PublishOption = False,
    rate: RateOption = None,
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Add the rows of Parquet files to a topic, each once.

    A row with a column `value` has the columns of a message; another row becomes the value as JSON. Rows get their
    original times if the topic has no messages. With a name, you can stop it at any time and run it again.
    """
    from lakelog.spark.pipelines.backfill_rows import RowOptions, parquet_files
    from lakelog.spark.pipelines.backfilling import BackfillJob
    from lakelog.spark.pipelines.backfilling import run_backfill as run

    job = BackfillJob(
        topic=topic,
        rows=RowOptions(key=key, time=time, order=tuple(order or ())),
        name=name,
        history=_history(load, publish),
        rate=None if rate is None else parse_rate(rate),
        dry_run=dry_run,
    )
    bar = MessageBar()
    with (
        spark_run(f"lakelog backfill {topic}", master, conf, url, token, stopped_line(name)) as (connection, spark),
        bar,
    ):
        done = run(connection, parquet_files(spark.spark, files), job, on_progress=bar.show)
    _print(done, json)


def run_copy(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    to: ToOption,
    from_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The server with the topic to read. Default: --url.")
    ] = None,
    from_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="The token for it. Default: --token, without --from-url.")
    ] = None,
    since: SinceOption = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End before messages appended at this time or later.")
    ] = None,
    name: NameOption = None,
    load: LoadOption = False,
    publish: PublishOption = False,
    rate: RateOption = None,
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Copy a topic into another one, also from another installation.

    Messages keep their times if the topic has no messages; otherwise they are published. With a name, you can stop it
    at any time and run it again with the same options: no message is added twice.
    """
    from lakelog.spark.pipelines.copying import CopyJob, source_of
    from lakelog.spark.pipelines.copying import run_copy as run

    job = CopyJob(
        topic=topic,
        to=to,
        since=since,
        until=until,
        name=name,
        history=_history(load, publish),
        rate=None if rate is None else parse_rate(rate),
        dry_run=dry_run,
    )
    bar = MessageBar()
    with spark_run(f"lakelog copy {topic}", master, conf, url, token, stopped_line(name)) as (connection, spark), bar:
        source = source_of(connection, from_url, from_token)
        done = run(source, connection, lambda: spark.spark, job, bar.show)
    _print(done, json)


def _history(load: bool, publish: bool) -> bool | None:
    if load and publish:
        raise InvalidRequest("Use --load or --publish, not both.")
    return True if load else False if publish else None


def _print(done: BackfillSummary, json: bool) -> None:
    print_result(
        json, {"topic": done.topic, "dry_run": done.dry_run, "history": done.is_history, **done.figures()}, _line(done)
    )


def _line(done: BackfillSummary) -> str:
    how = "loaded with their times" if done.is_history else "published"
    if done.dry_run:
        return f"{done.topic}: {show_count(done.remaining, 'message')} would be {how}"
    known = f"; {done.known:,} were there from an earlier run" if done.known else ""
    return f"{done.topic}: {show_count(done.added, 'message')} {how}{known}"
