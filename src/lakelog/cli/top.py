"""`lakelog top`: the groups of an environment, read again and again, with those that are stuck first."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from lakelog.cli.group_views import print_cause
from lakelog.cli.output import is_watched, print_json, print_line, print_table
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_duration
from lakelog.model.display import show_age, show_count

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.model.progress import GroupSummary
    from lakelog.model.stuck import Stuck

EXPLAINED = 10
"""The most groups whose causes are read each time: those whose oldest message waits longest."""
SHOWN_CAUSES = 3
_CLEAR = "\x1b[H\x1b[J"


class Row(NamedTuple):
    """A group at one time. `change` is the change of its lag per second; None at the first time."""

    group: GroupSummary
    change: float | None
    stuck: Sequence[Stuck]


def top(
    interval: Annotated[str, typer.Option(metavar="DURATION", help="The time between two readings, from 1s.")] = "2s",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many groups to show; at most 1,000.")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit; the default in a pipe.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Watch the lag, members and causes of all groups.

    A row has the lag and its trend, the age of the oldest message, members, dead letters, and why the group is stuck.
    """
    seconds = max(1.0, parse_duration(interval).total_seconds())
    with open_log(url, token, patient=True) as log:
        before: Mapping[str, int] = {}
        at = time.monotonic()
        while True:
            now = time.monotonic()
            rows = read(log, before, now - at)
            before, at = {each.group.name: each.group.lag for each in rows}, now
            if json:
                print_json({"groups": [shape(each) for each in rows[:limit]]})
                return
            if once or not is_watched():
                print_rows(rows, limit)
                return
            sys.stdout.write(_CLEAR)
            print_rows(rows, limit)
            time.sleep(seconds)


def read(log: Lakelog, before: Mapping[str, int], seconds: float) -> list[Row]:
    """Return the groups, the stuck ones first, then those whose oldest message waits longest.

    Args:
        log: The client.
        before: The lag at the previous reading, by group.
        seconds: The time since then.
    """
    found = sorted(log.groups(), key=_oldest)
    # The lag of a group with an unresponsive cell may be unknown.
    late = [each.name for each in found if each.lag or each.status in ("paused", "unresponsive")][:EXPLAINED]
    causes = {name: _causes(log, name) for name in late}
    rows = [Row(each, change(each.lag, before.get(each.name), seconds), causes.get(each.name, [])) for each in found]
    return sorted(rows, key=lambda each: not each.stuck)


def _causes(log: Lakelog, name: str) -> Sequence[Stuck]:
    """Return why the group is stuck; nothing if it was deleted since it was listed."""
    from lakelog.errors import GroupNotFound

    try:
        return [one for one in log.group(name).describe().stuck if one.partitions]
    except GroupNotFound:
        return []


def change(lag: int, before: int | None, seconds: float) -> float | None:
    """Return the change of a lag per second; None if it is unknown."""
    return None if before is None or seconds <= 0 else (lag - before) / seconds


def trend(lag: int, per_second: float | None) -> str:
    """Return the change of a lag as text, with the time that is left if it falls."""
    if per_second is None or abs(per_second) < 0.5:
        return ""
    if per_second > 0 or not lag:
        return f"{per_second:+,.0f}/s"
    from datetime import timedelta

    return f"{per_second:+,.0f}/s, {show_age(timedelta(seconds=lag / -per_second))} left"


def shape(row: Row) -> dict[str, object]:
    """Return a group as JSON shows it."""
    from msgspec import to_builtins

    shown: dict[str, object] = to_builtins(row.group)
    return shown | {"lag_per_second": row.change, "stuck": to_builtins(row.stuck)}


def print_rows(rows: Sequence[Row], limit: int, now: datetime | None = None) -> None:
    """Print a line with the totals, a table, and the most important causes with their remedies."""
    now = now or datetime.now(UTC)
    stuck = sum(bool(each.stuck) for each in rows)
    lag = sum(each.group.lag for each in rows)
    print_line(f"{show_count(len(rows), 'group')}, {stuck} stuck, lag {lag:,}")
    print_table(
        ["group", "lag", "trend", "oldest", "members", "dead", "status", "stuck"],
        [
            (
                each.group.name,
                f"{each.group.lag:,}",
                trend(each.group.lag, each.change),
                "" if each.group.oldest_at is None else show_age(now - each.group.oldest_at),
                each.group.member_count,
                f"{each.group.dead_letters:,}",
                each.group.status,
                ", ".join(dict.fromkeys(str(one.code) for one in each.stuck)),
            )
            for each in rows[:limit]
        ],
        empty="No groups yet.",
    )
    causes = [(each.group.name, one) for each in rows for one in each.stuck][:SHOWN_CAUSES]
    for name, cause in causes:
        print_line(f"\n{name}")
        print_cause(cause, now)


def _oldest(group: GroupSummary) -> tuple[bool, float, str]:
    """Return the order: by the age of the oldest unfinished message, then by name."""
    at = group.oldest_at
    return (at is None, 0.0 if at is None else at.timestamp(), group.name)
