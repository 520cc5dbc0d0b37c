"""`lakelog fetch`: prints the messages of one partition from a position on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.output import print_json, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.cli.units import parse_time
from lakelog.errors import OffsetOutOfRange
from lakelog.model.display import show_count

if TYPE_CHECKING:
    from datetime import datetime

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="WHERE", help="Start at: earliest, latest, a time (2026-01-31T12:00Z), or an age (2h)."
    ),
]
PAGE = 1000
PAGE_SECONDS = 1.0
"""How long a fetch waits for messages: a server that is about to stop may return none."""


def fetch(
    topic: Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete_topic)],
    partition: Annotated[int, typer.Option(min=0, help="The partition to fetch from.")] = 0,
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this offset.")] = None,
    start: FromOption = None,
    last: Annotated[int | None, typer.Option(min=0, help="Start N messages before the end.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Fetch at most N messages.")] = 100,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Fetch messages of one partition.

    It starts at the oldest message, unless --offset, --from or --last is given.
    """
    from lakelog.cli import messages

    if sum(given is not None for given in (offset, start, last)) > 1:
        raise typer.BadParameter("Give only one of --offset, --from and --last.")
    where: dict[str, Any] = (
        {"last": last} if last is not None else {"offset": offset} if offset is not None else position(start)
    )
    with open_log(url, token) as log:
        topic_ = log.topic(topic)
        result = topic_.fetch(partition, **where, limit=min(limit, PAGE))
        found = list(result.messages)
        while len(found) < limit and result.next_offset < result.high_watermark:
            result = next_page(topic_, partition, result.next_offset, limit=min(limit - len(found), PAGE))
            found += result.messages
    if json:
        print_json(
            {
                "messages": [messages.shape(message) for message in found],
                "next_offset": result.next_offset,
                "log_start": result.log_start,
                "high_watermark": result.high_watermark,
            }
        )
        return
    messages.print_texts(found)
    more = result.high_watermark - result.next_offset
    rest = f"{more:,} more, from --offset {result.next_offset} on" if more > 0 else "no more"
    say(f"{show_count(len(found), 'message')}; {rest}")


def next_page(topic: Any, partition: int | None, offset: int, *, limit: int = PAGE, wait: float = PAGE_SECONDS) -> Any:
    """Fetch from the offset on, or from the log start if retention has removed the message at the offset."""
    try:
        return topic.fetch(partition, offset=offset, limit=limit, wait=wait)
    except OffsetOutOfRange as error:
        log_start = error.subject.get("log_start")
        if not isinstance(log_start, int) or offset >= log_start:
            raise
        return topic.fetch(partition, offset="earliest", limit=limit, wait=wait)


def position(start: str | None) -> dict[str, str | datetime]:
    """Return the value of --from as arguments of the client's `fetch`."""
    if start is None or start in ("earliest", "latest"):
        return {"offset": start or "earliest"}
    try:
        return {"time": parse_time(start)}
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message} Or write earliest or latest.", param_hint="--from") from error
