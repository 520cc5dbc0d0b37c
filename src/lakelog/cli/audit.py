"""`lakelog audit`: lists who changed what, and which calls were refused for a missing right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import print_json, print_table
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_group, complete_topic, open_log
from lakelog.cli.units import parse_time
from lakelog.model.display import show_since

if TYPE_CHECKING:
    from lakelog.model.audit import AuditRecord


def audit(
    group: Annotated[
        str | None, typer.Option(help="Only records that name this group.", autocompletion=complete_group)
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Only records that name this topic.", autocompletion=complete_topic)
    ] = None,
    operation: Annotated[str | None, typer.Option(help="Only this operation, such as alter_group.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this token's id, or this user of the database.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From this time or age on: 2h, 7d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time or age.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most N records, the newest first.")] = 50,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """List who changed what, and which calls were refused.

    The newest records come first. They are kept for 400 days.
    """
    with open_log(url, token) as log:
        found = log.audit.list(
            group=group,
            topic=topic,
            operation=operation,
            actor=actor,
            since=parse_time(since) if since else None,
            until=parse_time(until) if until else None,
            limit=limit,
        )
    if json:
        from msgspec import to_builtins

        print_json({"records": to_builtins(found)})
        return
    print_table(
        ["age", "who", "from", "what", "outcome", "change"],
        [(show_since(each.at), _actor(each), each.address, each.text, each.outcome, _change(each)) for each in found],
        empty="No audit records.",
        cut=["change"],
    )


def _actor(record: AuditRecord) -> str:
    if record.actor_kind == "anonymous":
        return "no token"
    return f"{record.actor_name} ({record.actor})" if record.actor_name else record.actor


def _change(record: AuditRecord) -> str:
    """Return what was changed: the settings with their values before and after, or the fields of the request."""
    before, after = record.before or {}, record.after or {}
    if not before and not after:
        return ", ".join(f"{name}={text}" for name, text in record.given.items())
    if not before or not after:
        return ", ".join(f"{name}={_shown(value)}" for name, value in (after or before).items())
    return ", ".join(f"{name}: {_shown(before.get(name))} → {_shown(after.get(name))}" for name in {**before, **after})


def _shown(value: object) -> str:
    from msgspec.json import encode

    return value if isinstance(value, str) else encode(value).decode()
