"""`lakelog mark` and `lakelog marks`: deploys and changes on the timeline of topics and groups."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelog.cli.output import print_json, print_result, print_table
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_group, complete_topic, open_log
from lakelog.cli.units import parse_time
from lakelog.model.display import show_since

GroupOption = Annotated[str | None, typer.Option(help="The group that it concerns.", autocompletion=complete_group)]
TopicOption = Annotated[str | None, typer.Option(help="The topic that it concerns.", autocompletion=complete_topic)]


def mark(
    text: Annotated[str, typer.Argument(help="The text, such as 'deploy 1.4'.")],
    group: GroupOption = None,
    topic: TopicOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Mark the present time, such as that of a deploy.

    `lakelog marks` shows it together with pauses, seeks and other changes.
    """
    from msgspec import to_builtins

    with open_log(url, token) as log:
        made = log.marks.create(text, group=group, topic=topic)
    print_result(json, to_builtins(made), f"marked {made.text}")


def marks(
    group: GroupOption = None,
    topic: TopicOption = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From this time or age on: 2h, 7d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time or age.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most N marks, the newest first.")] = 50,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """List deploys, and changes of topics and groups.

    The newest come first. Marks that concern no single group or topic are always shown.
    """
    with open_log(url, token) as log:
        found = log.marks.list(
            group=group,
            topic=topic,
            since=parse_time(since) if since else None,
            until=parse_time(until) if until else None,
            limit=limit,
        )
    if json:
        from msgspec import to_builtins

        print_json({"marks": to_builtins(found)})
        return
    print_table(
        ["age", "mark", "group", "topic", "who"],
        [(show_since(each.at), each.text, each.group or "", each.topic or "", each.actor) for each in found],
        empty="No marks. Make one with `lakelog mark TEXT`.",
    )
