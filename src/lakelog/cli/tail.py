"""`lakelog tail`: the newest messages of a topic, and with `-f` those to come. One line each, out at once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from lakelog.cli.fetch import PAGE, FromOption, position
from lakelog.cli.output import print_line
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log

_WAIT_SECONDS = 20.0


def tail(
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what arrives, until Ctrl-C.")] = False,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=10_000, help="Begin with so many of the newest messages.")
    ] = 10,
    start: FromOption = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many messages.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show the newest messages of a topic; with -f also those to come.

    With --json, one object a line. Messages of one partition come in order; those of several as they are found.
    """
    from lakelog.cli import messages

    line = messages.json_line if json else messages.text_line
    where = position(start) if start else None
    if follow:
        _end_with_reader()
    with open_log(url, token, patient=follow) as log:
        for message in islice(_found(log.topic(topic), partition, where, last, follow), limit):
            print_line(line(message))


def _found(topic: Any, partition: int | None, where: dict[str, Any] | None, last: int, follow: bool) -> Iterator[Any]:
    """The messages that are asked for, and the ones to come."""
    if where is not None and partition is None:
        yield from topic.read(from_=where.get("time") or where["offset"], follow=follow)
        return
    if where is not None:
        yield from _one_partition(topic, partition, where, follow)
        return
    newest, ends = _newest(topic, partition, last)
    yield from newest
    if follow and partition is None:
        yield from topic.read(from_=ends, follow=True)
    elif follow:
        [(partition, offset)] = ends.items()
        yield from _one_partition(topic, partition, {"offset": offset}, follow)


def _newest(topic: Any, partition: int | None, last: int) -> tuple[list[Any], dict[int, int]]:
    """The last messages of all partitions together, by the time they were appended, and where to read on."""
    partitions = range(topic.describe().partitions) if partition is None else [partition]
    found: list[Any] = []
    ends: dict[int, int] = {}
    for one in partitions:
        result = topic.fetch(one, last=last, limit=max(last, 1))
        ends[one] = result.next_offset
        found = sorted([*found, *result.messages], key=lambda message: message.appended_at)
        found = found[-last:] if last else found
    return found, ends


def _one_partition(topic: Any, partition: int | None, where: dict[str, Any], follow: bool) -> Iterator[Any]:
    result = topic.fetch(partition, **where, limit=PAGE, wait=0)
    end = result.high_watermark
    while True:
        yield from (message for message in result.messages if follow or message.offset < end)
        if not follow and result.next_offset >= end:
            return
        result = topic.fetch(partition, offset=result.next_offset, limit=PAGE, wait=_WAIT_SECONDS if follow else 0)


def _end_with_reader() -> None:
    """Ends the process when whoever reads the pipe is gone, even if no message comes that could not be written."""
    import select
    import threading

    out = sys.stdout.fileno()
    if not stat.S_ISFIFO(os.fstat(out).st_mode):
        return

    def watch() -> None:
        poll = select.poll()
        poll.register(out, 0)
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
