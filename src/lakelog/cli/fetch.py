"""`lakelog fetch`: messages of one partition, from a position on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.output import print_json, print_line, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_time, show_count

if TYPE_CHECKING:
    from datetime import datetime

FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="WHERE", help="earliest, latest, a time (2026-01-31T12:00Z), or 2h: two hours ago."),
]
PAGE = 1000


def fetch(
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    partition: Annotated[int, typer.Option(min=0, help="Which partition.")] = 0,
    offset: Annotated[int | None, typer.Option(min=0, help="Begin at this offset.")] = None,
    start: FromOption = None,
    last: Annotated[int | None, typer.Option(min=0, help="Begin so many messages before the end.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many messages.")] = 100,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Fetch messages of one partition.

    From the log start, unless --offset, --from or --last says otherwise.
    """
    from lakelog.cli import messages

    if sum(given is not None for given in (offset, start, last)) > 1:
        raise typer.BadParameter("Give one of --offset, --from and --last.")
    where: dict[str, Any] = (
        {"last": last} if last is not None else {"offset": offset} if offset is not None else position(start)
    )
    with open_log(url, token) as log:
        found: list[Any] = []
        result = log.topic(topic).fetch(partition, **where, limit=min(limit, PAGE))
        found += result.messages
        while result.messages and len(found) < limit and result.next_offset < result.high_watermark:
            result = log.topic(topic).fetch(partition, offset=result.next_offset, limit=min(limit - len(found), PAGE))
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
    for message in found:
        print_line(messages.text_line(message))
    more = result.high_watermark - result.next_offset
    rest = f"{more} more from offset {result.next_offset} on" if more > 0 else "no more"
    say(f"{show_count(len(found), 'message')}; {rest}")


def position(start: str | None) -> dict[str, str | datetime]:
    """`--from` as the client's call takes it."""
    if start is None or start in ("earliest", "latest"):
        return {"offset": start or "earliest"}
    try:
        return {"time": parse_time(start)}
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message} Or earliest, or latest.", param_hint="--from") from error
