"""`lakelog publish`: one message from the command line, or any number from a file or stdin."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from lakelog.cli.formats import Format
from lakelog.cli.output import clean, print_result, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.cli.units import parse_duration, parse_pairs, parse_time
from lakelog.errors import InvalidRequest, LakelogError, PartlyPublished
from lakelog.model.display import show_count, show_time

if TYPE_CHECKING:
    from lakelog.cli.lines import BadLine, Input

_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublishOptions:
    """The options of the command that apply to every message."""

    format: Format
    key: str | None
    key_field: str | None
    headers: dict[str, str]
    partition: int | None
    skip_bad: bool
    schedule: dict[str, Any]
    """The `delay` or `deliver_at` of every message, or nothing."""
    as_text: bool


def publish(
    topic: Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete_topic)],
    file: Annotated[
        Path | None, typer.Argument(help="The file to publish. Default: stdin.", show_default=False)
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Publish this as one message: JSON if it is an object or array, else text.")
    ] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="lines: each line is a text. jsonl: each line is a JSON value. json: the whole input is one JSON "
            "value. messages: as `tail --json` prints them. raw: the whole input is one message, without a content "
            "type. csv, parquet: each row is a JSON object of its columns. auto: by the ending of the file's name "
            "(.jsonl, .ndjson, .csv, .parquet), else jsonl if the first line is a JSON object or array, else lines."
        ),
    ] = Format.AUTO,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    key_field: Annotated[
        str | None,
        typer.Option(
            "--key-field",
            "--key-column",
            metavar="FIELD",
            help="The field of JSON values, or the column, that holds the key. Default: the topic's key field.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=TEXT", help="A header of every message. May be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Publish to this partition instead of the key's.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="With --value: publish only if no message has this key yet.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Publish every message after this time, such as 30s or 2h.")
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Publish every message at this time, such as 2026-01-31T12:00Z.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Continue after a line or row that is not a message; exit code 1.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="With CSV: publish all cells as text, not as numbers.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Publish messages from stdin, a file, or --value.

    Empty lines are skipped. On a terminal it shows progress; in a pipe, or with --json, it prints a summary as JSON.
    """
    if value is not None and file is not None:
        raise typer.BadParameter("Give a FILE or --value, not both.")
    if value is None and idempotency_key is not None:
        raise typer.BadParameter("Use --idempotency-key only with --value: each message needs its own key.")
    given = _PublishOptions(
        format=format,
        key=key,
        key_field=key_field,
        headers=parse_pairs(header, "--header"),
        partition=partition,
        skip_bad=skip_bad,
        schedule=_schedule(delay, deliver_at),
        as_text=text,
    )
    json = json or not sys.stdout.isatty()
    if value is not None:
        with open_log(url, token) as log:
            _publish_value(log.topic(topic), value, given, idempotency_key, json)
        return
    with _opened(file) as (stream, name, size), open_log(url, token, patient=True) as log:
        _Bulk(log.topic(topic), given, json).run(stream, name, size)


def _publish_value(topic: Any, value: str, given: _PublishOptions, idempotency_key: str | None, json: bool) -> None:
    message = read_option(value, given.format, _key_field(topic, given))
    if given.key_field is not None and given.key is None and message.key is None:
        raise typer.BadParameter("This option needs a JSON --value, but the value is text.", param_hint="--key-field")
    receipt = topic.publish(message.value, idempotency_key=idempotency_key, **_options(message, given))
    again = ", where an earlier publish with that key had put it" * receipt.duplicate
    if receipt.offset is None:
        when = f"{show_time(receipt.due_at)} to partition {receipt.partition} (id {receipt.id})"
        print_result(json, receipt, f"will be published at {when}")
        return
    place = f"partition {receipt.partition} at offset {receipt.offset} (id {receipt.id})"
    print_result(json, receipt, f"published to {place}{again}")


def read_option(value: str, wanted: Format, key_field: str | None) -> Input:
    """Return the message of a --value; print a warning if it starts like JSON but is stored as text."""
    from lakelog.cli import lines

    try:
        message = lines.read_value(value, wanted, key_field)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--value") from None
    if message.doubt is not None:
        say(
            f"lakelog: The value starts like JSON but is not JSON: {clean(message.doubt)}.\n"
            "         It is stored as text. Use --format json to refuse such values."
        )
    return message


def _key_field(topic: Any, given: _PublishOptions) -> str | None:
    """Return the field that holds the keys, unless --key gives one."""
    if given.key is not None:
        return None
    return given.key_field if given.key_field is not None else topic.describe().key_field


def _options(message: Input, given: _PublishOptions) -> dict[str, Any]:
    """Return the arguments of `publish` for the message; the command's options take precedence."""
    return {
        "key": given.key if given.key is not None else message.key,
        "headers": {**message.headers, **given.headers} or None,
        "partition": given.partition,
        "correlation_id": message.correlation_id,
        "content_type": message.content_type,
        **given.schedule,
    }


def _schedule(delay: str | None, deliver_at: str | None) -> dict[str, Any]:
    if delay is not None and deliver_at is not None:
        raise typer.BadParameter("Give --delay or --deliver-at, not both.")
    if delay is not None:
        return {"delay": parse_duration(delay)}
    if deliver_at is None:
        return {}
    if deliver_at[-1:].isalpha() and not deliver_at.endswith(("Z", "z")):
        raise typer.BadParameter(f"{deliver_at!r} is not a time. For a duration, use --delay {deliver_at}.")
    return {"deliver_at": parse_time(deliver_at)}


def _advice(file: Path) -> str:
    """Return what to do if the name of the file looks like a message."""
    text = str(file)
    is_message = text.startswith(("{", "[", '"')) or any(sign.isspace() for sign in text)
    return " To publish it as a message, use --value." if is_message else ""


@contextlib.contextmanager
def _opened(file: Path | None) -> Iterator[tuple[BinaryIO, str, int | None]]:
    """Open the input; yield the stream, its name, and its size if it is known."""
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            say("Type one message per line. Press Ctrl-D to finish.")
        yield sys.stdin.buffer, "", None
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(
            f"{file} cannot be read: {error.strerror}.{_advice(file)}", param_hint="FILE"
        ) from error
    with stream:
        size = os.fstat(stream.fileno()).st_size
        yield stream, file.name, size or None


class _Bulk:
    """Publishes a stream of input with a producer."""

    def __init__(self, topic: Any, given: _PublishOptions, json: bool) -> None:
        self._topic = topic
        self._given = given
        self._json = json
        self._bad = 0
        self._failed = 0
        self._unit = "line"
        self._has_rows = False

    def run(self, stream: BinaryIO, name: str, size: int | None) -> None:
        from lakelog.cli import lines

        wanted = lines.format_of(name, self._given.format)
        key_field = _key_field(self._topic, self._given)
        if wanted in lines.ROWS:
            from lakelog.cli.rows import read_rows

            self._has_rows = True
            self._unit = "row" if wanted is Format.PARQUET else "line"
            found = read_rows(stream, wanted, key_field, size, as_text=self._given.as_text)
        else:
            found = lines.read_messages(stream, name, wanted, key_field)
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
        if one.doubt is not None:
            say(
                f"lakelog: Line {one.number} starts like JSON but is not JSON: {clean(one.doubt)}.\n"
                "         Each line is stored as text. If the whole input is one JSON value, use --format json."
            )
        try:
            producer.send(one.value, **_options(one, self._given))
        except InvalidRequest as error:
            self._refuse(one.number, error.detail, progress)
        else:
            progress.add(one.size)

    def _refuse(self, number: int, reason: str, progress: Progress) -> None:
        from lakelog.cli.lines import WHOLE

        self._bad += 1
        if self._given.format in WHOLE:
            raise InvalidRequest(f"The input is not a message: {reason}.")
        if self._given.skip_bad:
            say(f"lakelog: {self._unit} {number} is skipped: {clean(reason)}")
            return
        raise InvalidRequest(
            f"{self._unit.capitalize()} {number} is not a message: {reason}. The {self._unit}s before it are "
            f"published: {show_count(progress.count, 'message')}.\n"
            f"Fix it and publish from that {self._unit} on{self._rest(number)}, or use --skip-bad or another --format."
        )

    def _rest(self, number: int) -> str:
        """Return how to get the rest of the input, if one command gets it."""
        return "" if self._has_rows else f" (tail -n +{number} FILE)"

    def _report(self, progress: Progress) -> None:
        seconds, rate = progress.seconds, progress.rate
        summary = {"published": progress.count, "bad": self._bad, "seconds": round(seconds, 3), "rate": round(rate, 1)}
        count = show_count(progress.count, "message")
        print_result(self._json, summary, f"published {count} in {seconds:.1f} s ({rate:,.0f}/s)")
        if self._bad:
            say(f"lakelog: {show_count(self._bad, self._unit)} skipped.")
            raise typer.Exit(1)

    def _count_failed(self, error: LakelogError, messages: Any) -> None:
        self._failed += len(messages)


class Progress:
    """Counts messages, and shows the count, the rate and, if the size is known, the progress."""

    def __init__(self, *, total_bytes: int | None, watched: bool | None = None) -> None:
        self.count = 0
        self._bytes = 0.0
        self._total = total_bytes
        self._watched = sys.stderr.isatty() if watched is None else watched
        self._shown: Any = None
        self._task: Any = None
        self._started = self._next = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def rate(self) -> float:
        return self.count / max(self.seconds, 1e-6)

    def add(self, size: float) -> None:
        self.count += 1
        self._bytes += size
        if self._shown is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_SECONDS
            self._shown.update(self._task, completed=self._bytes, count=self.count, rate=self.rate)

    def __enter__(self) -> Progress:
        if self._watched:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar

            known = [BarColumn(), TaskProgressColumn()] if self._total else []
            numbers = TextColumn("{task.fields[count]:,} messages  {task.fields[rate]:,.0f}/s")
            console = Console(stderr=True)
            self._shown = Bar(SpinnerColumn(), *known, numbers, console=console, transient=True)
            self._task = self._shown.add_task("", total=self._total, count=0, rate=0.0)
            self._shown.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown is not None:
            self._shown.stop()
