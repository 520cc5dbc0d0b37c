"""`lakelog groups`: how far groups are, and the verbs that change them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli import group_views
from lakelog.cli.asking import YesOption, confirm
from lakelog.cli.output import print_json, print_line, print_table, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_duration, parse_time, show_count, show_time
from lakelog.model.kinds import Assignor, Order

if TYPE_CHECKING:
    from lakelog.client.group_values import Sought
    from lakelog.model.group import RetryPolicy

app = typer.Typer(no_args_is_help=True, help="List, describe, move, pause, alter and delete groups.")

_ID = re.compile(r"\d+-\d+-\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_AS_ID = "id:"

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only this topic; else all that the group reads.")]


@app.command("list")
def list_groups(url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """List the groups that the token can see."""
    with open_log(url, token) as log:
        found = log.groups()
    if json:
        print_json({"groups": [group_views.shape(group) for group in found]})
        return
    print_table(
        ["name", "kind", "order", "filter", "paused", "created"],
        [
            (
                group.name,
                group.kind,
                group.settings.order,
                group.settings.filter or "",
                group_views.show_paused(group),
                show_time(group.created_at),
            )
            for group in found
        ],
        empty="No groups yet; one is made when its first worker starts, or its first consumer asks for messages.",
    )


@app.command()
def describe(name: GroupArgument, url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """Show lag, members and leases, and the reason for anything that does not move."""
    with open_log(url, token) as log:
        found = log.group(name).describe()
    if json:
        print_json(group_views.described(found))
    else:
        group_views.print_description(found)


@app.command()
def seek(
    name: GroupArgument,
    topic: Annotated[str, typer.Argument(help="The topic in which it is moved.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, a time (2026-01-31T12:00Z; 2h: two hours ago), or a message's id.",
        ),
    ],
    partition: Annotated[int | None, typer.Option(min=0, help="Move this partition only.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Move a group to another position of a topic.

    What is leased is taken back, retries are forgotten, and messages from there on are handed out (again).
    """
    where = target(to)
    with open_log(url, token) as log:
        moved = log.topic(topic).seek(name, **where, partition=partition, dry_run=dry_run)
    if json:
        partitions = [{"partition": each.partition, "from": each.before, "to": each.after} for each in moved]
        print_json({"dry_run": dry_run, "partitions": partitions})
        return
    print_table(
        ["partition", "from", "to", "change"],
        [(each.partition, each.before, each.after, f"{each.after - each.before:+,}") for each in moved],
        empty=f"Topic {topic} has no partitions to move in.",
    )
    say(_seek_summary(name, topic, moved, dry_run))


def target(text: str) -> dict[str, Any]:
    """`--to` as the client's seek takes it."""
    if text in ("earliest", "latest"):
        return {"to": text}
    if text.startswith(_AS_ID):
        return {"message_id": text.removeprefix(_AS_ID)}
    if text.isascii() and text.isdigit():
        return {"offset": int(text)}
    if _ID.fullmatch(text):
        return {"to": parse_time(text)} if _is_date(text) else {"message_id": text}
    try:
        return {"to": parse_time(text)}
    except typer.BadParameter as error:
        advice = "Or earliest, latest, an offset, or a message's id."
        raise typer.BadParameter(f"{error.message} {advice}", param_hint="--to") from error


def _is_date(text: str) -> bool:
    """2026-01-31 is a date, because an id has no leading zeros; 2026-11-30 may be both."""
    if not _DATE.fullmatch(text):
        return False
    if any(part.startswith("0") for part in text.split("-")):
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    raise typer.BadParameter(
        f"{text} may be a day or a message's id; write {text}T00:00Z or {_AS_ID}{text}.", param_hint="--to"
    )


def _seek_summary(name: str, topic: str, moved: list[Sought], dry_run: bool) -> str:
    again = sum(max(0, each.before - each.after) for each in moved)
    left_out = sum(max(0, each.after - each.before) for each in moved)
    verb = "would be" if dry_run else "are"
    parts = [
        f"{show_count(again, 'message')} {verb} handed out again" if again else "",
        f"{show_count(left_out, 'message')} {verb} left out" if left_out else "",
    ]
    what = " and ".join(part for part in parts if part) or "nothing changes"
    return f"group {name}, topic {topic}: {what}{' (dry run)' if dry_run else ''}"


@app.command()
def pause(
    name: GroupArgument,
    topic: TopicOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Hand out nothing more; what is leased may be finished."""
    with open_log(url, token) as log:
        log.group(name).pause(topic)
    _print_switched("paused", name, topic, json)


@app.command()
def resume(
    name: GroupArgument,
    topic: TopicOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Go on after a pause."""
    with open_log(url, token) as log:
        log.group(name).resume(topic)
    _print_switched("resumed", name, topic, json)


def _print_switched(verb: str, name: str, topic: str | None, json: bool) -> None:
    """Only what was asked for: a token that may change a group may not be allowed to read it."""
    if json:
        print_json({verb: name, "topic": topic})
    else:
        print_line(f"{verb} group {name}, {f'topic {topic}' if topic else 'all topics'}")


@app.command()
def alter(
    name: GroupArgument,
    order: Annotated[Order | None, typer.Option(help="In which order messages are handed out.")] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Which messages the group wants; '' for all.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, max=1000, help="How often a failed message is tried again.")
    ] = None,
    retry_base: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait that long after the first failure, then twice as long.")
    ] = None,
    retry_max_delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait never longer than this.")
    ] = None,
    dead_letter: Annotated[
        bool | None,
        typer.Option("--dead-letter/--no-dead-letter", help="Keep what failed too often, or discard it."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="At most so many of a partition are leased or wait.")
    ] = None,
    assignor: Annotated[Assignor | None, typer.Option(help="How partitions are shared out among members.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Change a group's settings. What is left out stays.

    Workers that state another setting than the group's are refused when they start again: change them too.
    """
    changes: dict[str, object] = {
        "order": order,
        "filter": filter,
        "dead_letter": dead_letter,
        "window": window,
        "assignor": assignor,
    }
    given: dict[str, Any] = {option: change for option, change in changes.items() if change is not None}
    base = parse_duration(retry_base).total_seconds() if retry_base else None
    longest = parse_duration(retry_max_delay).total_seconds() if retry_max_delay else None
    retried = any(each is not None for each in (retries, base, longest))
    if not given and not retried:
        raise typer.BadParameter("Say what to change: --retries, --filter, --order, …; `--help` lists all.")
    with open_log(url, token) as log:
        group = log.group(name)
        if retried:
            present = group.describe().group.settings.retries
            given["retries"] = retry_policy(present, retries, base, longest)
        info = group.alter(**given)
    if json:
        print_json(group_views.shape(info))
    else:
        group_views.print_settings(info)


def retry_policy(
    present: RetryPolicy, retries: int | None, base_seconds: float | None, max_seconds: float | None
) -> RetryPolicy:
    """The present policy with what is given. A longest delay makes a fixed delay one that doubles."""
    from lakelog.model.group import Exponential, Fixed

    count = present.max if retries is None else retries
    if isinstance(present, Fixed):
        base = present.seconds if base_seconds is None else base_seconds
        if max_seconds is None:
            return Fixed(max=count, seconds=base)
        return Exponential(max=count, base_seconds=base, max_seconds=max_seconds)
    base = present.base_seconds if base_seconds is None else base_seconds
    longest = present.max_seconds if max_seconds is None else max_seconds
    return replace(present, max=count, base_seconds=base, max_seconds=longest)


@app.command()
def delete(
    name: GroupArgument,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a group, its progress and its dead letters, for good. It must have no members."""
    with open_log(url, token) as log:
        group = log.group(name)
        if not yes:
            found = group.describe()
            dead = show_count(found.dead_letters, "dead letter")
            confirm(f"Delete group {name}, its progress (lag {found.lag:,}) and {dead}, for good?")
        group.delete()
    if json:
        print_json({"deleted": name})
    else:
        print_line(f"deleted group {name}")
