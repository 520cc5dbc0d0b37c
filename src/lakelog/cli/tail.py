"""`lakelog tail`: prints the newest messages of a topic, and with `-f` new messages as they arrive."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Annotated, Any

import typer

from lakelog.cli.fetch import PAGE, PAGE_SECONDS, FromOption, next_page, position
from lakelog.cli.output import print_line, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log

_FOLLOW_SECONDS = 20.0


def tail(
    topic: Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete_topic)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new messages until Ctrl-C.")] = False,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=10_000, help="Start with the newest N messages; at most 10,000.")
    ] = 10,
    start: FromOption = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N messages.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show the newest messages of a topic, or follow it with -f.

    With --json, it prints one object per line. Messages of one partition are in order; with --from or -f, partitions
    are interleaved.
    """
    from lakelog.cli import messages

    where = position(start) if start else None
    if follow:
        _end_with_reader()
    with open_log(url, token, patient=follow) as log:
        found = islice(find_messages(log.topic(topic), partition, where, last, follow), limit)
        if json:
            for message in found:
                print_line(messages.json_line(message))
        elif not messages.print_texts(found):
            say(f"No messages to show in topic {topic}.")


def find_messages(
    topic: Any, partition: int | None, where: dict[str, Any] | None, last: int, follow: bool
) -> Iterator[Any]:
    """Yield the requested messages; with `follow`, also new messages as they arrive."""
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
    """Return the last messages of all partitions in the order of their times, and the offsets to continue from."""
    partitions = range(topic.describe().partitions) if partition is None else [partition]
    found: list[Any] = []
    ends: dict[int, int] = {}
    for one in partitions:
        own: list[Any] = []
        for page in _pages(topic, one, {"last": last}, follow=False):
            own += page.messages
            ends[one] = page.next_offset
        # Merged, not sorted: messages of one partition stay in the order of their offsets, whatever their times are.
        found = list(merge(found, own, key=lambda message: message.appended_at))
        found = found[-last:] if last else found
    return found, ends


def _one_partition(topic: Any, partition: int | None, where: dict[str, Any], follow: bool) -> Iterator[Any]:
    end: int | None = None
    for page in _pages(topic, partition, where, follow):
        end = page.high_watermark if end is None else end
        yield from (message for message in page.messages if follow or message.offset < end)


def _pages(topic: Any, partition: int | None, where: dict[str, Any], follow: bool) -> Iterator[Any]:
    """Yield pages up to the high watermark that the first page reports; with `follow`, without end.

    A fetch may return fewer messages than its limit although there are more: it ends at the end of a stored batch.
    """
    page = topic.fetch(partition, **where, limit=PAGE)
    end = page.high_watermark
    yield page
    # A topic that was deleted and created again may never reach the end of the old one.
    while follow or page.next_offset < min(end, page.high_watermark):
        page = next_page(topic, partition, page.next_offset, wait=_FOLLOW_SECONDS if follow else PAGE_SECONDS)
        yield page


def _end_with_reader() -> None:
    """Exit when the reader of the pipe is gone, even if no further message arrives to be written."""
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
