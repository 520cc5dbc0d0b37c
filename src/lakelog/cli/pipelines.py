"""`lakelog pipelines`: runs pipelines on this machine or on a Spark cluster, and lists their runs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.iceberg import run_iceberg, run_latest
from lakelog.cli.output import print_json, print_result, print_table, say
from lakelog.cli.pipeline_backfill import run_backfill, run_copy
from lakelog.cli.pipeline_compact import plan_compact, run_compact
from lakelog.cli.pipeline_options import (
    ConfOption,
    DryOption,
    EveryOption,
    MasterOption,
    RateOption,
    SinceOption,
    ToOption,
    TopicOption,
    find_connection,
    parse_age,
    parse_every,
    spark_run,
)
from lakelog.cli.pipeline_screen import MessageBar, TopicScreen, stopped_line
from lakelog.cli.pipeline_serve import serve
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.cli.units import parse_rate, parse_size
from lakelog.model.display import show_count, show_duration, show_since, show_size

if TYPE_CHECKING:
    from lakelog.model.pipeline import PipelineRun
    from lakelog.spark.pipelines.jobs import TierJob
    from lakelog.spark.pipelines.replaying import ReplaySummary
    from lakelog.spark.pipelines.sweeping import SweepSummary
    from lakelog.spark.pipelines.tiering import TierSummary

app = typer.Typer(no_args_is_help=True, help="Tier, compact, sweep, make tables, load, replay, list runs.")
run_app = typer.Typer(no_args_is_help=True, help="Run a pipeline, once or continuously.")
plan_app = typer.Typer(no_args_is_help=True, help="Show what a pipeline would do.")
app.add_typer(run_app, name="run")
app.add_typer(plan_app, name="plan")
run_app.command("compact")(run_compact)
plan_app.command("compact")(plan_compact)
run_app.command("iceberg")(run_iceberg)
run_app.command("latest")(run_latest)
run_app.command("backfill")(run_backfill)
run_app.command("copy")(run_copy)
app.command("serve")(serve)

SizeOption = Annotated[
    str, typer.Option("--segment-size", metavar="SIZE", help="Target size of a segment, in stored bytes.")
]
AgeOption = Annotated[
    str,
    typer.Option(
        "--min-age",
        metavar="DURATION",
        help="Messages that do not fill a segment wait until they are this old; 0s for no wait.",
    ),
]


@run_app.command("tier")
def run_tier(
    topic: TopicOption = None,
    every: EveryOption = None,
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    segment_size: SizeOption = "128MiB",
    min_age: AgeOption = "5m",
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Move older messages from PostgreSQL to Parquet files.

    Readers see no difference. You can stop it at any time; the next run continues from there. Only one run per topic
    is active. The server drops a hot table a minute after all of its messages are moved and verified.
    """
    from lakelog.spark.pipelines import jobs

    job = _job(topic, segment_size, min_age, dry_run, parse_every(every))
    stopped = "Stopped. Tiered messages stay tiered. Run the command again to continue."
    screen = TopicScreen(json, "segments", partial(_tiered_line, job=job), skips=every is not None)
    with spark_run(f"lakelog tier {topic or ''}".strip(), master, conf, url, token, stopped) as run, screen:
        done = jobs.run_tier(*run, job, screen)
    if not done and not json:
        say("There are no topics to tier.")


@plan_app.command("tier")
def plan_tier(
    topic: TopicOption = None,
    segment_size: SizeOption = "128MiB",
    min_age: AgeOption = "5m",
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show which offsets would become which segments.

    Like `run tier --dry-run`, but by partition.
    """
    from lakelog.spark.pipelines.tiering import TierSummary, explained, tierable

    job = _job(topic, segment_size, min_age, True, None)
    with open_log(url, token) as log:
        topics = [topic] if topic else [info.name for info in log.topics()]
        found = [(name, each) for name in topics for each in tierable(log, name, job.options)]
        left = {name: len(log.lake.unverified(name)) for name in topics}
        nothing = [] if found else [explained(log, TierSummary(topic=name)) for name in topics]
    if json:
        print_json({"ranges": [{"topic": name} | asdict(each) for name, each in found], "unverified": left})
        return
    print_table(
        ["topic", "partition", "first", "end", "messages", "stored"],
        [
            (name, each.partition, each.first, each.end, f"{each.end - each.first:,}", show_size(each.bytes))
            for name, each in found
        ],
        empty="\n".join(_nothing_line(each, job) for each in nothing) or "There are no topics to tier.",
    )
    if waiting := sum(left.values()):
        say(f"{show_count(waiting, 'segment')} of an earlier run would be verified first.")


@run_app.command("sweep")
def run_sweep(
    min_age: Annotated[
        str, typer.Option("--min-age", metavar="DURATION", help="Time between the two checks that find a file unused.")
    ] = "1d",
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Delete unused files from the object store.

    A file is deleted when two checks, a day apart, found it unused. Run it daily.
    """
    from lakelog.spark.pipelines.jobs import stoppable
    from lakelog.spark.pipelines.sweeping import sweep

    connection = find_connection(url, token)
    with stoppable():
        done = sweep(min_age=parse_age(min_age), dry_run=dry_run, url=connection.url, token=connection.token)
    print_result(json, {"dry_run": done.dry_run, **done.figures()}, _swept_line(done))


@run_app.command("replay")
def run_replay(
    topic: Annotated[str, typer.Argument(help="The topic to read.", autocompletion=complete_topic)],
    to: ToOption,
    since: SinceOption = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End before messages appended at this time or later. Default: now."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Store the position under this name. A run with the name continues there.")
    ] = None,
    rate: RateOption = None,
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Publish messages of a topic into another topic, each once.

    Groups of the topic are unaffected. With a name, you can stop it at any time; the next run with the name and the
    same options continues from there, and repeats nothing. Only one replay per topic is active.
    """
    from lakelog.spark.pipelines import replaying

    per_second = None if rate is None else parse_rate(rate)
    job = replaying.ReplayJob(topic=topic, to=to, since=since, until=until, name=name, rate=per_second, dry_run=dry_run)
    bar = MessageBar()
    with spark_run(f"lakelog replay {topic}", master, conf, url, token, stopped_line(name)) as (connection, spark), bar:
        done = replaying.run_replay(connection, lambda: spark.spark, job, bar.show)
    print_result(
        json, {"topic": done.topic, "to": done.to, "dry_run": done.dry_run, **done.figures()}, _replayed_line(done)
    )


@app.command()
def runs(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="Only runs of this pipeline, such as tier.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only runs of this topic.", autocompletion=complete_topic)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most N runs, newest first; at most 1,000.")] = 20,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """List runs with their state and progress."""
    with open_log(url, token) as log:
        found = log.pipelines.list(pipeline, topic, limit=limit)
    if json:
        print_json({"runs": found})
        return
    print_table(
        ["pipeline", "topic", "state", "age", "took", "progress", "detail"],
        [
            (
                run.pipeline,
                run.topic or "",
                run.state.value,
                show_since(run.started_at),
                _took(run),
                _progress(run),
                run.detail or (f"on {run.host}" if run.state == "running" else ""),
            )
            for run in found
        ],
        empty="No pipeline has run yet. Start with `lakelog pipelines run tier`.",
        cut=["detail"],
    )


def _job(topic: str | None, size: str, min_age: str, dry_run: bool, every: float | None) -> TierJob:
    from lakelog.spark.pipelines.jobs import TierJob

    return TierJob(
        topic=topic, segment_bytes=parse_size(size), min_age=parse_age(min_age), every_seconds=every, dry_run=dry_run
    )


def _tiered_line(done: TierSummary, job: TierJob) -> str:
    if done.is_nothing:
        return _nothing_line(done, job)
    verb = "would be tiered" if done.dry_run or (not job.every_seconds and job.dry_run) else "tiered"
    line = f"{done.topic}: {verb} {show_count(done.messages, 'message')} in {show_count(done.segments, 'segment')}"
    extra = [
        f"{done.settled} of an earlier run verified" if done.settled and not done.dry_run else "",
        f"{done.dropped} damaged and taken out again" if done.dropped else "",
        f"{done.taken} left to others" if done.taken else "",
    ]
    told = "; ".join(part for part in extra if part)
    return f"{line} ({show_size(done.bytes)}){'; ' + told if told else ''}"


def _nothing_line(done: TierSummary, job: TierJob) -> str:
    """Return the reason why there was nothing to tier."""
    if not done.total:
        return f"{done.topic}: nothing to tier: the topic has no messages"
    if not done.hot:
        return f"{done.topic}: nothing to tier: files hold all {show_count(done.total, 'message')} already"
    size, age = show_size(job.segment_bytes), show_duration(job.min_age)
    hint = "; to move them now, use --min-age 0s" if job.min_age else ""
    return (
        f"{done.topic}: nothing to tier yet: {show_count(done.hot, 'message')} in PostgreSQL, "
        f"less than a segment of {size} and younger than {age}{hint}"
    )


def _swept_line(done: SweepSummary) -> str:
    verb = "would be deleted" if done.dry_run else "deleted"
    return f"{show_count(done.files, 'file')} looked at, {done.deleted:,} {verb} ({show_size(done.bytes)})"


def _replayed_line(done: ReplaySummary) -> str:
    if done.dry_run:
        return f"{done.topic}: {show_count(done.remaining, 'message')} would be published to {done.to}"
    retired = f"; {done.retired:,} were removed by retention before" if done.retired else ""
    return f"{done.topic}: published {show_count(done.published, 'message')} to {done.to}{retired}"


def _took(run: PipelineRun) -> str:
    seconds = ((run.ended_at or run.seen_at) - run.started_at).total_seconds()
    return show_duration(timedelta(seconds=round(seconds, 0 if seconds >= 1 else 1)))


def _progress(run: PipelineRun) -> str:
    figures = run.progress
    if "segments" in figures:
        done, planned = figures.get("messages", 0), figures.get("planned_messages", 0)
        return f"{done:,} of {planned:,}" if planned > done else show_count(done, "message")
    if "published" in figures:
        return f"{figures['messages'] - figures['remaining']:,} of {show_count(figures['messages'], 'message')}"
    return ", ".join(f"{figure:,} {name.replace('_', ' ')}" for name, figure in figures.items())
