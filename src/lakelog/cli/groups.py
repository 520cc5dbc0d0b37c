"""`lakelog groups`: lists, describes, moves, pauses, alters and deletes groups."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli import group_views
from lakelog.cli.output import YesOption, confirm, print_json, print_result, print_table, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_group, complete_topic, open_log
from lakelog.cli.units import parse_duration, parse_time
from lakelog.model.display import show_count
from lakelog.model.kinds import Assignor, Order

if TYPE_CHECKING:
    from lakelog.model.group import RetryPolicy
    from lakelog.model.seek import Skipped, Sought

app = typer.Typer(no_args_is_help=True, help="List, describe, move, pause, alter and delete groups.")

_ID = re.compile(r"\d+-\d+-\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_AS_ID = "id:"

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", autocompletion=complete_group)]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", help="Only this topic. Default: all that the group reads.", autocompletion=complete_topic),
]


@app.command("list")
def list_groups(url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """List groups with lag, age, members and dead letters."""
    with open_log(url, token) as log:
        found = log.groups()
    if json:
        print_json({"groups": found})
    else:
        group_views.print_list(found)


@app.command()
def describe(name: GroupArgument, url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """Show lag, members, leases, and why messages wait."""
    with open_log(url, token) as log:
        found = log.group(name).describe()
    if json:
        print_json(group_views.described(found))
    else:
        group_views.print_description(found)


@app.command()
def history(
    name: GroupArgument,
    topic: TopicOption = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="From this time or age on: 2h, 7d.")] = "1h",
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Up to this time or age. Default: now.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Show lag, age and throughput over time.

    Servers take a sample of each group once a minute. For a longer time, the samples are further apart.
    """
    with open_log(url, token) as log:
        found = log.group(name).history(
            topic, since=parse_time(since), until=parse_time(until) if until else None, partitions=json and bool(topic)
        )
    if json:
        from msgspec import to_builtins

        print_json(to_builtins(found))
    else:
        group_views.print_history(found)


@app.command()
def seek(
    name: GroupArgument,
    topic: Annotated[str, typer.Argument(help="The topic to move in.", autocompletion=complete_topic)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, a time (2026-01-31T12:00Z; 2h: two hours ago), or a message's id.",
        ),
    ],
    partition: Annotated[int | None, typer.Option(min=0, help="Move only this partition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Move a group to another position of a topic.

    Leases are revoked, retries are forgotten, and the group receives the messages from there on, even those that it has
    finished.
    """
    where = target(to)
    with open_log(url, token) as log:
        moved = log.topic(topic).seek(name, **where, partition=partition, dry_run=dry_run)
    if json:
        print_json({"dry_run": dry_run, "partitions": moved})
        return
    print_table(
        ["partition", "from", "to", "change"],
        [(each.partition, each.before, each.after, f"{each.after - each.before:+,}") for each in moved],
        empty=f"Topic {topic} has no partitions to move the group in.",
    )
    say(_seek_summary(name, topic, moved, dry_run))


def target(text: str) -> dict[str, Any]:
    """Return the value of --to as arguments of the client's `seek`."""
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
        advice = "Or write earliest, latest, an offset, or a message's id."
        raise typer.BadParameter(f"{error.message} {advice}", param_hint="--to") from error


def _is_date(text: str) -> bool:
    """Return whether the text can only be a date. 2026-11-30 may also be a message id, which has no leading zeros."""
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
        f"{show_count(again, 'message')} {verb} delivered again" if again else "",
        f"{show_count(left_out, 'message')} {verb} skipped" if left_out else "",
    ]
    what = " and ".join(part for part in parts if part) or "nothing changes"
    return f"group {name}, topic {topic}: {what}{' (dry run)' if dry_run else ''}"


@app.command()
def skip(
    name: GroupArgument,
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)],
    partition: Annotated[int, typer.Option(min=0, help="The partition to move in.")],
    to: Annotated[int, typer.Option("--to", metavar="OFFSET", min=0, help="The offset at which the group continues.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be skipped.")] = False,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Move a group past messages without delivering them.

    Use it for a partition with a damaged or missing segment file that cannot be restored: `groups describe` names the
    offset to skip to. It also skips messages that can be read, such as a backlog that is no longer wanted. Skipped
    messages are counted as cut, also those that wait for a retry; leased messages stay with their workers. To deliver
    the messages later, move the group back with `groups seek`.
    """
    with open_log(url, token) as log:
        found = log.topic(topic)
        if not (yes or dry_run):
            planned = found.skip(name, partition=partition, offset=to, dry_run=True)
            if planned.messages:
                say(_readable(topic, planned))
                confirm(f"S{_skip_summary(name, topic, planned, 'skip')[1:]}?")
        skipped = found.skip(name, partition=partition, offset=to, dry_run=dry_run)
    print_result(json, skipped, _skip_summary(name, topic, skipped, "would skip" if dry_run else "skipped"))


def _readable(topic: str, planned: Skipped) -> str:
    place = f"{topic}/{planned.partition}"
    if planned.unreadable is None:
        return f"The next message of {place} can be read. Without a skip, the group receives it."
    first, last = planned.unreadable
    return f"Offsets {first} to {last} of {place} cannot be read: the file of their segment is damaged or missing."


def _skip_summary(name: str, topic: str, skipped: Skipped, verb: str) -> str:
    where = f"{topic}/{skipped.partition} below offset {skipped.offset}"
    summary = f"{verb} {show_count(skipped.messages, 'message')} of {where} for group {name}"
    if not skipped.messages:
        summary = f"nothing to skip in {where} for group {name}"
    if skipped.leased:
        summary += f"; {show_count(skipped.leased, 'leased message')} there stay with their workers"
    return summary


@app.command()
def pause(
    name: GroupArgument,
    topic: TopicOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Stop delivering messages to a group. Leased messages can be finished."""
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
    """Resume a paused group."""
    with open_log(url, token) as log:
        log.group(name).resume(topic)
    _print_switched("resumed", name, topic, json)


def _print_switched(verb: str, name: str, topic: str | None, json: bool) -> None:
    """Print only what was requested, because a token that can change a group may not be allowed to read it."""
    where = f"topic {topic}" if topic else "all topics"
    print_result(json, {verb: name, "topic": topic}, f"{verb} group {name}, {where}")


@app.command()
def alter(
    name: GroupArgument,
    order: Annotated[Order | None, typer.Option(help="The order in which messages are delivered.")] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Deliver only messages that match; '' for all.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, max=1000, help="How often a failed message is retried; at most 1,000.")
    ] = None,
    retry_base: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Delay after the first failure; it doubles with each further failure."),
    ] = None,
    retry_max_delay: Annotated[str | None, typer.Option(metavar="DURATION", help="The longest delay.")] = None,
    dead_letter: Annotated[
        bool | None,
        typer.Option(
            "--dead-letter/--no-dead-letter",
            help="Keep messages that failed too often as dead letters, or discard them.",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="How many messages of a partition may be leased or waiting; at most 10,000."
        ),
    ] = None,
    assignor: Annotated[Assignor | None, typer.Option(help="How partitions are assigned to members.")] = None,
    dead_max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Keep dead letters this long, such as 30d.")
    ] = None,
    dead_max_count: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Keep at most N dead letters per partition.")
    ] = None,
    keep_all_dead: Annotated[
        bool, typer.Option("--keep-all-dead", help="Remove the limits of dead letters that are not given.")
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(
            help="Change --filter, --retries and --dead-letter in this topic only.", autocompletion=complete_topic
        ),
    ] = None,
    inherit: Annotated[
        bool, typer.Option("--inherit", help="Remove the settings of --topic first: those of the group apply again.")
    ] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Change a group's settings. Settings that are not given do not change.

    With --topic, the settings override those of the group in one topic. A worker whose subscription has other settings
    is refused at its next start, so change its code too.
    """
    changes: dict[str, object] = {
        "order": order,
        "filter": filter,
        "dead_letter": dead_letter,
        "window": window,
        "assignor": assignor,
        "dead_letter_max_age": parse_duration(dead_max_age) if dead_max_age else None,
        "dead_letter_max_count": dead_max_count,
    }
    given: dict[str, Any] = {option: change for option, change in changes.items() if change is not None}
    if keep_all_dead:
        given = {"dead_letter_max_age": None, "dead_letter_max_count": None} | given
    base = parse_duration(retry_base).total_seconds() if retry_base else None
    longest = parse_duration(retry_max_delay).total_seconds() if retry_max_delay else None
    retried = any(each is not None for each in (retries, base, longest))
    if inherit and topic is None:
        raise typer.BadParameter("--inherit removes the settings of one topic: name it with --topic.")
    if not given and not retried and not inherit:
        raise typer.BadParameter("Give a setting to change, such as --retries; `--help` lists all.")
    with open_log(url, token) as log:
        group = log.group(name)
        if retried:
            settings = group.describe().group.settings
            present = settings if topic is None or inherit else settings.in_topic(topic)
            given["retries"] = retry_policy(present.retries, retries, base, longest)
        info = group.alter(**given, topic=topic, inherit=inherit)
    if json:
        print_json(info)
    else:
        group_views.print_settings(info)


def retry_policy(
    present: RetryPolicy, retries: int | None, base_seconds: float | None, max_seconds: float | None
) -> RetryPolicy:
    """Return the current policy with the given changes. Setting a longest delay makes the policy exponential."""
    from lakelog.model.retries import Exponential, Fixed

    count = present.max if retries is None else retries
    base = present.base_ms / 1000 if base_seconds is None else base_seconds
    if present.strategy == "fixed" and max_seconds is None:
        return Fixed(max=count, seconds=base)
    longest = present.max_ms / 1000 if max_seconds is None else max_seconds
    return Exponential(max=count, base_seconds=base, max_seconds=longest, jitter=present.jitter)


@app.command()
def delete(
    name: GroupArgument,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a group without members, its progress and its dead letters."""
    with open_log(url, token) as log:
        group = log.group(name)
        if not yes:
            found = group.describe()
            dead = show_count(found.dead_letters, "dead letter")
            confirm(f"Delete group {name}, its progress (lag {found.lag:,}) and {dead}? This cannot be undone.")
        group.delete()
    print_result(json, {"deleted": name}, f"deleted group {name}")
