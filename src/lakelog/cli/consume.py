"""`lakelog consume`: prints the messages of a group and acks those that the reader of the output has."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Generator
from contextlib import closing
from typing import Annotated, Any

import typer

from lakelog.cli.fetch import FromOption, position
from lakelog.cli.output import print_line, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_group, complete_topic, open_worker_log
from lakelog.model.display import show_count

_BATCH = 100
_LOOK_SECONDS = 0.25
"""How often a waiting command checks that its reader is still there."""
_HOLD_SECONDS = 12 * 3600.0
"""How long messages are held for a reader that pauses, such as a pager."""


def consume(
    topics: Annotated[list[str], typer.Argument(help="The topics' names.", autocompletion=complete_topic)],
    group: Annotated[
        str, typer.Option("--group", "-g", help="The group that consumes.", autocompletion=complete_group)
    ],
    start: FromOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N messages.")] = None,
    wait: Annotated[float | None, typer.Option(min=0, help="Stop after N seconds without a message.")] = None,
    lease: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which others get the messages if this process is killed.")
    ] = 30.0,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Print messages of a group, and ack what was printed.

    In a pipe, a message is acked when the reader of the pipe has read it. All other messages go back to the group. With
    --json, it prints one object per line. --from is for a group that has not read the topic before; the default is
    latest.
    """
    from lakelog.cli import messages

    where = None if start is None else position(start)
    start_from: Any = None if where is None else where.get("time") or where["offset"]
    with (
        open_worker_log(url, token) as log,
        log.consumer(
            *topics, group=group, start_from=start_from, prefetch=0, lease=lease, ack_timeout=_HOLD_SECONDS
        ) as consumer,
        # Closed before the consumer: printed messages are acked, and then the others are given back.
        closing(_printable(consumer, limit, wait)) as found,
    ):
        count = sum(_print_json(message) for message in found) if json else messages.print_texts(found)
        say(f"{show_count(count, 'message')} consumed.")


def _print_json(message: Any) -> int:
    from lakelog.cli import messages

    print_line(messages.json_line(message))
    return 1


def _printable(consumer: Any, limit: int | None, wait: float | None) -> Generator[Any, None, None]:
    """Yield messages to print. When the caller asks for the next one, the last one was printed.

    Printed messages are acked after each batch, and if the reader ends.
    """
    reader = PipeReader()
    left = limit if limit is not None else sys.maxsize
    quiet_since = time.monotonic()
    while left and not reader.is_gone():
        batch = consumer.batch(min(_BATCH, left), timeout=_LOOK_SECONDS)
        printed = 0
        try:
            for delivery in batch:
                yield delivery.message
                if not reader.has_read():
                    return
                printed += 1
        finally:
            if printed:
                batch[:printed].ack()
        left -= printed
        if batch:
            quiet_since = time.monotonic()
        elif wait is not None and time.monotonic() - quiet_since >= wait:
            return


class PipeReader:
    """The reader of the standard output. Only for a pipe can its progress be seen."""

    def __init__(self) -> None:
        try:
            self._out = sys.stdout.fileno()
            self._is_pipe = stat.S_ISFIFO(os.fstat(self._out).st_mode)
        except (OSError, ValueError):
            self._is_pipe = False

    def is_gone(self) -> bool:
        """Return whether the reader has closed the pipe."""
        if not self._is_pipe:
            return False
        poll = select.poll()
        poll.register(self._out, 0)
        return bool(poll.poll(0))

    def has_read(self) -> bool:
        """Wait until the reader has read all that was printed. Return False if it ends before that."""
        pause = 0.00005
        while self._is_pipe and self._unread():
            if self.is_gone():
                return False
            time.sleep(pause)
            pause = min(0.01, 2 * pause)
        return True

    def _unread(self) -> int:
        import array
        import fcntl
        import termios

        count = array.array("i", [0])
        try:
            fcntl.ioctl(self._out, termios.FIONREAD, count)
        except OSError:
            # The system does not tell: what was written counts as read.
            return 0
        return count[0]
