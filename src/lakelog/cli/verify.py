"""`lakelog verify`: reads everything that an installation stores, and names what is damaged, missing or unused."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import print_json, print_line, print_table
from lakelog.cli.pipeline_options import TopicsArgument, parse_age
from lakelog.cli.progress_bar import ProgressBar
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_share
from lakelog.model.display import show_count, show_size

if TYPE_CHECKING:
    from lakelog.client.verifying.problems import Problem
    from lakelog.client.verifying.verification import Verified

FAILED = 1


def verify(
    topics: TopicsArgument = None,
    sample: Annotated[
        str, typer.Option(metavar="SHARE", help="Read only this share of the files, such as 5%.")
    ] = "100%",
    unused_age: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Report files that no segment has used for this long; 0s for all of them."
        ),
    ] = "2d",
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Read all messages, and name what is damaged, missing or unused.

    Files are compared with the hashes that were stored when they were written. Offsets must have no gap and be in one
    place. Without topics, it also looks for unused files. The token needs the rights to read and to manage. The exit
    code is 1 if there is a problem.
    """
    from lakelog.client.verifying.verification import VerifyOptions, verify_topics

    options = VerifyOptions(share=parse_share(sample), unused_age=parse_age(unused_age), seed=secrets.randbits(32))
    with open_log(url, token) as log, ProgressBar("{task.completed:,.0f} of {task.total:,.0f} messages") as bar:

        def show(topic: str, done: Verified) -> None:
            bar.update(topic or "files", done.cold + done.hot, max(done.planned, 1))

        done = verify_topics(log, topics or (), options=options, watch=show)
    if json:
        print_json(done)
    else:
        _print(done)
    raise typer.Exit(FAILED if done.problems else 0)


def _print(done: Verified) -> None:
    if done.problems:
        print_table(
            ["problem", "topic", "offsets", "file", "detail"],
            [(each.kind.value, _place(each), _offsets(each), each.path, each.detail) for each in done.problems],
            empty="",
            cut=["detail"],
        )
    read = f"{show_count(done.cold, 'message')} in {show_count(done.segments, 'file')} ({show_size(done.bytes)})"
    unused = f"; {show_count(done.unused, 'unused file')}" if done.unused else ""
    verdict = show_count(len(done.problems), "problem") if done.problems else "no problem"
    print_line(
        f"{show_count(done.topics, 'topic')}: read {read} and {show_count(done.hot, 'message')} in PostgreSQL{unused}; "
        f"{verdict}"
    )


def _place(problem: Problem) -> str:
    return problem.topic if problem.partition is None else f"{problem.topic}/{problem.partition}"


def _offsets(problem: Problem) -> str:
    return "" if problem.first is None or problem.end is None else f"{problem.first}–{problem.end - 1}"
