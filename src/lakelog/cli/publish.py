"""`lakelog publish`: one message from the command line, or any number from a file or stdin."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from lakelog.cli.formats import Format
from lakelog.cli.output import clean, print_json, print_line, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_pairs, show_count
from lakelog.errors import InvalidRequest, LakelogError, PartlyPublished

if TYPE_CHECKING:
    from lakelog.cli.lines import BadLine, Input
    from lakelog.cli.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What every message of the command gets."""

    format: Format
    key: str | None
    key_field: str | None
    headers: dict[str, str]
    partition: int | None
    skip_bad: bool


def publish(
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    file: Annotated[
        Path | None, typer.Argument(help="What to publish; stdin if left out, or `-`.", show_default=False)
    ] = None,
    value: Annotated[str | None, typer.Option(help="Publish this text as one message.")] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="lines: text, a message a line. jsonl: a JSON value a line. messages: as `tail --json` prints them. "
            "raw: all of the input is one message. auto: jsonl if the first line is a JSON object or array, else lines."
        ),
    ] = Format.AUTO,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    key_field: Annotated[str | None, typer.Option(help="Take keys from this field of JSON; else the topic's.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", metavar="NAME=TEXT", help="May be repeated.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Publish to this partition, whatever the key.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="With --value: a repeat is not published twice.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on after a line that is no message; exit code 1.")
    ] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Publish messages from stdin, a file, or --value. Empty lines are left out.

    On a terminal it shows its progress; piped, or with --json, it prints a summary as JSON.
    """
    if value is not None and file is not None:
        raise typer.BadParameter("Give a FILE or --value, not both.")
    if value is None and idempotency_key is not None:
        raise typer.BadParameter("--idempotency-key is for --value: each message needs a key of its own.")
    wish = _Wish(
        format=format,
        key=key,
        key_field=key_field,
        headers=parse_pairs(header, "--header"),
        partition=partition,
        skip_bad=skip_bad,
    )
    json = json or not sys.stdout.isatty()
    if value is not None:
        with open_log(url, token) as log:
            _publish_one(log.topic(topic), value, wish, idempotency_key, json)
        return
    with _opened(file) as (stream, name, size), open_log(url, token, patient=True) as log:
        _Bulk(log.topic(topic), wish, json).run(stream, name, size)


def _publish_one(topic: Any, value: str, wish: _Wish, idempotency_key: str | None, json: bool) -> None:
    receipt = topic.publish(
        value, key=wish.key, headers=wish.headers or None, partition=wish.partition, idempotency_key=idempotency_key
    )
    if json:
        print_json(receipt)
    else:
        again = ", where an earlier publish with that key had put it" * receipt.duplicate
        print_line(f"published to partition {receipt.partition} at offset {receipt.offset} (id {receipt.id}){again}")


@contextlib.contextmanager
def _opened(file: Path | None) -> Iterator[tuple[BinaryIO, str, int | None]]:
    """The input, its name, and its size if that is known."""
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            say("Type a message a line; Ctrl-D ends.")
        yield sys.stdin.buffer, "", None
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.", param_hint="FILE") from error
    with stream:
        size = os.fstat(stream.fileno()).st_size
        yield stream, file.name, size or None


class _Bulk:
    """Publishes a stream of input by a producer."""

    def __init__(self, topic: Any, wish: _Wish, json: bool) -> None:
        self._topic = topic
        self._wish = wish
        self._json = json
        self._bad = 0
        self._failed = 0

    def run(self, stream: BinaryIO, name: str, size: int | None) -> None:
        from lakelog.cli import lines
        from lakelog.cli.progress import Progress

        key_field = self._wish.key_field
        if key_field is None and self._wish.key is None:
            key_field = self._topic.describe().key_field
        found = lines.read_messages(stream, name, self._wish.format, None if self._wish.key is not None else key_field)
        typed = stream is sys.stdin.buffer and sys.stdin.isatty()
        progress = Progress(total_bytes=size, watched=False if typed else None)
        producer = self._topic.producer(on_error=self._count_failed)
        try:
            with progress, producer:
                for one in found:
                    self._take(producer, progress, one)
        except PartlyPublished as error:
            published = progress.count - self._failed
            raise LakelogError(f"{error.detail} Published: {published}.") from error
        except KeyboardInterrupt:
            say(f"Stopped; {show_count(progress.count - self._failed, 'message')} published.")
            raise
        self._report(progress)

    def _take(self, producer: Any, progress: Progress, one: Input | BadLine) -> None:
        from lakelog.cli.lines import BadLine

        if isinstance(one, BadLine):
            self._refuse(one.number, one.reason, progress)
            return
        wish = self._wish
        try:
            producer.send(
                one.value,
                key=wish.key if wish.key is not None else one.key,
                headers={**one.headers, **wish.headers} or None,
                partition=wish.partition,
                correlation_id=one.correlation_id,
                content_type=one.content_type,
            )
        except InvalidRequest as error:
            self._refuse(one.number, error.detail, progress)
        else:
            progress.add(one.size)

    def _refuse(self, number: int, reason: str, progress: Progress) -> None:
        self._bad += 1
        if self._wish.skip_bad:
            say(f"lakelog: line {number} is left out: {clean(reason)}")
            return
        raise InvalidRequest(
            f"Line {number} is no message: {reason}. What was before it is published: "
            f"{show_count(progress.count, 'message')}.\n"
            f"Mend it and publish from that line on (tail -n +{number} FILE), or give --skip-bad, or another --format."
        )

    def _report(self, progress: Progress) -> None:
        if self._json:
            print_json(
                {
                    "published": progress.count,
                    "bad": self._bad,
                    "seconds": round(progress.seconds, 3),
                    "rate": round(progress.rate, 1),
                }
            )
        else:
            count = show_count(progress.count, "message")
            print_line(f"published {count} in {progress.seconds:.1f} s ({progress.rate:,.0f}/s)")
        if self._bad:
            say(f"lakelog: {show_count(self._bad, 'line')} left out.")
            raise typer.Exit(1)

    def _count_failed(self, error: LakelogError, messages: Any) -> None:
        self._failed += len(messages)
