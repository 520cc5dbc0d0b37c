"""`lakelog pipelines run compact` and `plan compact`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import print_json, print_table, say
from lakelog.cli.pipeline_options import (
    ConfOption,
    DryOption,
    MasterOption,
    TopicsArgument,
    parse_age,
    spark_run,
)
from lakelog.cli.pipeline_screen import TopicScreen
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_size
from lakelog.model.display import show_count, show_duration, show_size

if TYPE_CHECKING:
    from lakelog.spark.pipelines.compact_plan import CompactOptions
    from lakelog.spark.pipelines.compacting import CompactSummary

FileOption = Annotated[str, typer.Option("--file-size", metavar="SIZE", help="Largest size of a new file.")]
QuietOption = Annotated[
    str,
    typer.Option(
        "--min-age",
        metavar="DURATION",
        help="Segments of a day that do not fill a file wait until the newest message is this old; 0s for no wait.",
    ),
]
FillOption = Annotated[
    bool, typer.Option("--fill-columns", help="Also rewrite files that lack the typed columns of the topic.")
]


def run_compact(
    topics: TopicsArgument = None,
    file_size: FileOption = "256MiB",
    min_age: QuietOption = "1h",
    fill_columns: FillOption = False,
    master: MasterOption = "local[2]",
    conf: ConfOption = None,
    dry_run: DryOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Rewrite small segments as larger files.

    A file has messages of one partition and one day in UTC. Readers see no difference. You can stop it at any time; the
    next run continues from there. The old files are unused then, and `run sweep` deletes them a day later.
    """
    from lakelog.spark.pipelines import jobs

    options = _options(file_size, min_age, fill_columns)
    job = jobs.CompactJob(topics=tuple(topics or ()), options=options, dry_run=dry_run)
    stopped = "Stopped. Compacted files stay compacted. Run the command again to continue."
    screen = TopicScreen(json, "files", partial(_compacted_line, options=options))
    with spark_run("lakelog compact", master, conf, url, token, stopped) as run, screen:
        done = jobs.run_compact(*run, job, screen)
    if not done and not json:
        say("There are no topics to compact.")


def plan_compact(
    topics: TopicsArgument = None,
    file_size: FileOption = "256MiB",
    min_age: QuietOption = "1h",
    fill_columns: FillOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show which segments would be rewritten together.

    Like `run compact --dry-run`, but by file. A segment that crosses midnight is split first, and its parts are merged
    afterwards.
    """
    from lakelog.spark.pipelines.compacting import compactable, planned

    options = _options(file_size, min_age, fill_columns)
    with open_log(url, token) as log:
        names = topics or [info.name for info in log.topics()]
        found = [(name, part) for name in names for part in compactable(log, name, options)[0]]
        nothing = [] if found else [planned(log, name, options) for name in names]
    rows = [
        {
            "topic": name,
            "partition": part[0].partition,
            "day": f"{part[0].first_at:%Y-%m-%d}",
            "first": part[0].first,
            "end": part[-1].end,
            "segments": len(part),
            "bytes": sum(segment.bytes for segment in part),
        }
        for name, part in found
    ]
    if json:
        print_json({"files": rows})
        return
    print_table(
        ["topic", "partition", "day", "first", "end", "segments", "size"],
        [
            (*list(row.values())[:-1], show_size(sum(segment.bytes for segment in part)))
            for row, (_, part) in zip(rows, found, strict=True)
        ],
        empty="\n".join(_nothing_line(each, options) for each in nothing) or "There are no topics to compact.",
    )


def _options(file_size: str, min_age: str, fill_columns: bool) -> CompactOptions:
    from lakelog.spark.pipelines.compact_plan import CompactOptions

    return CompactOptions(file_bytes=parse_size(file_size), min_age=parse_age(min_age), fill_columns=fill_columns)


def _compacted_line(done: CompactSummary, options: CompactOptions) -> str:
    if done.is_nothing:
        return _nothing_line(done, options)
    old, size = show_count(done.replaced, "segment"), show_size(done.bytes)
    if done.dry_run:
        return f"{done.topic}: would rewrite {old} of {done.total:,} ({size}) as {show_count(done.segments, 'file')}"
    left = f"; {show_count(done.taken, 'file')} left to others" if done.taken else ""
    return f"{done.topic}: rewrote {old} of {done.total:,} as {show_count(done.segments, 'file')} ({size}){left}"


def _nothing_line(done: CompactSummary, options: CompactOptions) -> str:
    """Return the reason why there was nothing to compact."""
    if not done.total:
        return f"{done.topic}: nothing to compact: the topic has no segments"
    hint = ""
    if options.min_age:
        hint = f"; segments of the last {show_duration(options.min_age)} wait, use --min-age 0s to include them"
    return f"{done.topic}: nothing to compact among {show_count(done.total, 'segment')}{hint}"
