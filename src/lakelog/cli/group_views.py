"""Output of `lakelog groups`: JSON with the fields of the HTTP API, or tables."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakelog.cli.output import print_fields, print_line, print_table
from lakelog.model.display import show_age, show_count, show_duration

if TYPE_CHECKING:
    from lakelog.model.group import GroupInfo, GroupSettings, GroupTopicSettings, RetryPolicy
    from lakelog.model.history import GroupHistory
    from lakelog.model.progress import GroupDescription, GroupSummary, LeaseInfo, MemberInfo, PartitionProgress
    from lakelog.model.stuck import Stuck

_SHOWN_RUNS = 3
_COMMAND = re.compile(r"`[^`]+`")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_MOST_DEAD = 10_000
"""The server counts dead letters up to this number."""


def print_list(groups: Sequence[GroupSummary], now: datetime | None = None) -> None:
    """Print a line for each group."""
    now = now or datetime.now(UTC)
    print_table(
        ["group", "lag", "oldest", "members", "dead", "status"],
        [
            (
                group.name,
                f"{group.lag:,}",
                _ago(group.oldest_at, now),
                group.member_count,
                f"{group.dead_letters:,}{'+' if group.dead_letters >= _MOST_DEAD else ''}",
                group.status,
            )
            for group in groups
        ],
        empty="No groups yet. A group is created when its first worker starts, or a consumer asks for messages.",
    )


def described(found: GroupDescription) -> dict[str, object]:
    """Return the description as JSON shows it, with the lag and the leases of all partitions."""
    from msgspec import to_builtins

    shown: dict[str, object] = to_builtins(found)
    return shown | {"lag": found.lag, "leases": [lease for each in found.progress for lease in each.leases]}


def print_history(found: GroupHistory) -> None:
    """Print a line for each point."""
    print_table(
        ["time (UTC)", "lag", "oldest", "leased", "retries", "done/s", "members", "dead"],
        [
            (
                each.at.strftime("%Y-%m-%d %H:%M"),
                f"{each.lag:,}",
                show_age(timedelta(seconds=each.oldest_seconds)) if each.lag else "",
                f"{each.leased:,}",
                f"{each.waiting:,}",
                "" if each.done_per_second is None else f"{each.done_per_second:,.1f}",
                each.members,
                f"{each.dead_letters:,}",
            )
            for each in found.points
        ],
        empty="No samples in this time. Servers take one a minute, of groups that read a topic.",
    )


def print_settings(group: GroupInfo) -> None:
    print_fields({"name": group.name} | _settings(group))


def print_description(found: GroupDescription, now: datetime | None = None) -> None:
    """Print what a group is doing, its settings, members, partitions and leases, and why messages wait."""
    now = now or datetime.now(UTC)
    group = found.group
    oldest = min((each.oldest_at for each in found.progress if each.oldest_at), default=None)
    list_them = f"; list them with `lakelog dead list {group.name}`" if found.dead_letters else ""
    state: dict[str, object] = {
        "name": group.name,
        "status": found.status,
        "lag": show_count(found.lag, "message") + (f", the oldest published {_ago(oldest, now)} ago" if oldest else ""),
        "members": f"{len(found.members)} ({found.state}, generation {found.generation})",
        "rebalances": _rebalances(found, now),
        "dead letters": f"{found.dead_letters:,}{list_them}",
    }
    print_fields(state | _settings(group))
    _print_members(found.members, now)
    _print_progress(found.progress, now)
    _print_leases(found.progress, now)
    causes = [each for each in found.stuck if each.partitions]
    if causes:
        print_line("\nWhy messages wait:")
        for cause in causes:
            print_cause(cause, now)


def print_cause(cause: Stuck, now: datetime) -> None:
    """Print where messages wait, for how long and why, and the commands that the sentence does not name."""
    from lakelog.model.progress import show_partitions

    where = show_partitions({cause.topic or "": cause.partitions})
    since = f" for {_ago(cause.since, now)}" if cause.since is not None else ""
    _print_wrapped([f"{where} ({cause.code}{since}): {cause.text}"])
    others = [each for each in cause.remedies if each.cli and each.cli not in cause.text]
    _print_wrapped(f"  {each.label}: `{each.cli}`" for each in others)


def _rebalances(found: GroupDescription, now: datetime) -> str:
    if found.last_rebalance_at is None:
        return "none"
    last = f"the last {_ago(found.last_rebalance_at, now)} ago"
    return f"{found.rebalances:,}, {last}; partitions waited {_seconds(found.rebalancing_ms)} in total"


def show_paused(group: GroupInfo) -> str:
    return "all topics" if "*" in group.paused else ", ".join(sorted(group.paused))


def show_retries(policy: RetryPolicy) -> str:
    if policy.max == 0:
        return "none"
    if policy.strategy == "exponential":
        return f"{policy.max}, after {_seconds(policy.base_ms)} and then twice as long, up to {_seconds(policy.max_ms)}"
    return f"{policy.max}, each after {_seconds(policy.base_ms)}"


def _settings(group: GroupInfo) -> dict[str, object]:
    settings = group.settings
    return {
        "paused": show_paused(group) or "no",
        "kind": group.kind,
        "order": settings.order,
        "filter": settings.filter or "none",
        "retries": show_retries(settings.retries),
        "after the last": _after_the_last(settings),
        "window": settings.window,
        "assignor": settings.assignor,
    } | {f"in topic {topic}": _show_topic(settings.topics[topic]) for topic in sorted(settings.topics)}


def _show_topic(own: GroupTopicSettings) -> str:
    """Return the settings that a topic overrides in one line."""
    shown = []
    if own.filter is not None:
        shown.append(f"filter {own.filter or 'none'}")
    if own.retries is not None:
        shown.append(f"retries {show_retries(own.retries)}")
    if own.dead_letter is not None:
        shown.append(f"after the last {_show_dead_letter(own.dead_letter)}")
    return "; ".join(shown)


def _show_dead_letter(is_kept: bool) -> str:
    return "kept as a dead letter" if is_kept else "discarded"


def _after_the_last(settings: GroupSettings) -> str:
    """Return what happens to a message that failed too often, with the limits of dead letters."""
    kept, limits = settings.dead_letter_retention, [_show_dead_letter(settings.dead_letter)]
    if not settings.dead_letter:
        return limits[0]
    if kept.max_age is not None:
        limits.append(f"up to {show_duration(kept.max_age)}")
    if kept.max_count is not None:
        limits.append(f"at most {kept.max_count:,} per partition")
    return ", ".join(limits)


def _print_members(members: tuple[MemberInfo, ...], now: datetime) -> None:
    from lakelog.model.progress import show_partitions

    if members:
        print_line("")
        print_table(
            ["member", "host", "partitions", "seen"],
            [
                (one.member_id, one.client_host, show_partitions(one.assigned) or "none", _ago(one.seen_at, now))
                for one in members
            ],
            empty="",
        )


def _print_progress(progress: tuple[PartitionProgress, ...], now: datetime) -> None:
    """Print the partitions as a table that fits 80 columns even with nine-digit offsets."""
    print_line("")
    print_table(
        ["partition", "committed", "end", "lag", "leased", "waiting", "oldest", "status"],
        [
            (
                f"{each.topic}/{each.partition}",
                each.committed,
                each.high_watermark,
                each.lag,
                each.leased,
                each.waiting,
                _ago(each.oldest_at, now),
                each.status,
            )
            for each in progress
        ],
        empty="The group has read no topic yet.",
    )


def _print_leases(progress: tuple[PartitionProgress, ...], now: datetime) -> None:
    rows = [
        (f"{each.topic}/{each.partition}", lease.owner, _offsets(lease), _left(lease, now))
        for each in progress
        for lease in each.leases
    ]
    if rows:
        print_line("")
        print_table(["lease of", "owner", "offsets", "ends in"], rows, empty="")


def _offsets(lease: LeaseInfo) -> str:
    """Return the first ranges of offsets, and the number of messages if there are more ranges."""
    from lakelog.model.progress import show_ranges

    shown = show_ranges(lease.offsets[:_SHOWN_RUNS])
    count = sum(last - first + 1 for first, last in lease.offsets)
    return shown if len(lease.offsets) <= _SHOWN_RUNS else f"{shown}, … ({count:,})"


def _left(lease: LeaseInfo, now: datetime) -> str:
    left = "" if lease.expires_at is None else show_age(lease.expires_at - now) if lease.expires_at > now else "ended"
    return f"{left} (suspect)" if lease.suspect else left


def _ago(time: datetime | None, now: datetime) -> str:
    return "" if time is None else show_age(now - time)


def _print_wrapped(lines: Iterable[str]) -> None:
    """On a terminal, break lines between words, but not inside a command; in a pipe, leave them whole."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        if width:
            # Keep the command on one line so that it can be copied; a narrow terminal wraps it without a line break.
            line = _COMMAND.sub(lambda command: command[0].replace(" ", _NO_BREAK), line)
            line = textwrap.fill(
                line, max(40, width - 2), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            ).replace(_NO_BREAK, " ")
        print_line(textwrap.indent(line, "  "))


def _seconds(ms: int) -> str:
    return show_duration(timedelta(milliseconds=ms))
