"""Groups as commands print them: JSON with the fields of the HTTP API, or tables for people."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lakelog.cli.output import print_fields, print_line, print_table
from lakelog.cli.units import show_count, show_duration, show_time

if TYPE_CHECKING:
    from lakelog.client.group_values import GroupDescription, GroupInfo, LeaseInfo, MemberInfo, PartitionProgress
    from lakelog.model.group import RetryPolicy

_FIGURES = ("committed", "frontier", "log_start", "high_watermark", "epoch", "lag", "leased", "waiting", "skipped")
_ENDS = ("acked", "dead", "discarded", "filtered", "expired", "cut")


def shape(group: GroupInfo) -> dict[str, object]:
    settings = group.settings
    return {
        "group_id": group.name,
        "kind": group.kind,
        "settings": {
            "order": settings.order,
            "filter": settings.filter,
            "retries": _retries_shape(settings.retries),
            "dead_letter": settings.dead_letter,
            "assignor": settings.assignor,
            "window": settings.window,
        },
        "version": group.version,
        "paused": sorted(group.paused),
        "created_at": group.created_at,
    }


def described(found: GroupDescription) -> dict[str, object]:
    """All of it; `leases` are those of all partitions."""
    return {
        **shape(found.group),
        "state": found.state,
        "generation": found.generation,
        "lag": found.lag,
        "members": [_member_shape(member) for member in found.members],
        "idle": found.idle,
        "rebalances": found.rebalances,
        "progress": [_progress_shape(each) for each in found.progress],
        "leases": [_lease_shape(each, lease) for each in found.progress for lease in each.leases],
        "dead_letters": found.dead_letters,
    }


def print_settings(group: GroupInfo) -> None:
    print_fields(_settings(group))


def print_description(found: GroupDescription) -> None:
    group = found.group
    dead = show_count(found.dead_letters, "dead letter")
    more = f"; `lakelog dead list {group.name}` shows them" if found.dead_letters else ""
    state: dict[str, object] = {
        "state": found.state,
        "lag": show_count(found.lag, "message"),
        "members": f"{len(found.members)}, generation {found.generation}",
        "given up": f"{dead}{more}",
    }
    print_fields(_settings(group) | state)
    _print_members(found.members)
    _print_progress(found.progress)
    _print_leases(found.progress)
    if found.stuck:
        print_line("\nStands still:")
        for why in found.stuck:
            print_line(f"  {why}")


def show_paused(group: GroupInfo) -> str:
    return "all topics" if "*" in group.paused else ", ".join(sorted(group.paused))


def show_retries(policy: RetryPolicy) -> str:
    if policy.max == 0:
        return "none"
    from lakelog.model.group import Exponential

    if isinstance(policy, Exponential):
        first, last = _seconds(policy.base_seconds), _seconds(policy.max_seconds)
        return f"{policy.max}, after {first} and then twice as long, up to {last}"
    return f"{policy.max}, each after {_seconds(policy.seconds)}"


def _settings(group: GroupInfo) -> dict[str, object]:
    settings = group.settings
    return {
        "name": group.name,
        "kind": group.kind,
        "order": settings.order,
        "filter": settings.filter or "none",
        "retries": show_retries(settings.retries),
        "after the last": "kept as a dead letter" if settings.dead_letter else "discarded",
        "window": settings.window,
        "assignor": settings.assignor,
        "paused": show_paused(group) or "no",
    }


def _print_members(members: tuple[MemberInfo, ...]) -> None:
    if members:
        print_line("")
        print_table(
            ["member", "host", "partitions", "seen"],
            [(one.member_id, one.client_host, _assigned(one), show_time(one.seen_at)) for one in members],
            empty="",
        )


def _print_progress(progress: tuple[PartitionProgress, ...]) -> None:
    print_line("")
    print_table(
        ["topic", "partition", "committed", "high watermark", "lag", "leased", "waiting", "skipped", "dead", "oldest"],
        [
            (
                each.topic,
                each.partition,
                each.committed,
                each.high_watermark,
                each.lag,
                each.leased,
                each.waiting,
                each.skipped,
                each.dead,
                show_time(each.oldest_at),
            )
            for each in progress
        ],
        empty="The group has read no topic yet.",
    )


def _print_leases(progress: tuple[PartitionProgress, ...]) -> None:
    rows = [
        (
            f"{each.topic}/{each.partition}",
            lease.token,
            lease.owner,
            _offsets(lease),
            show_time(lease.expires_at),
            "suspect" if lease.suspect else "",
        )
        for each in progress
        for lease in each.leases
    ]
    if rows:
        print_line("")
        print_table(["lease of", "token", "owner", "offsets", "until", ""], rows, empty="")


def _assigned(member: MemberInfo) -> str:
    return (
        "; ".join(f"{topic} {', '.join(map(str, some))}" for topic, some in member.assigned.items() if some) or "none"
    )


def _offsets(lease: LeaseInfo) -> str:
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in lease.offsets)


def _member_shape(member: MemberInfo) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "client_host": member.client_host,
        "assigned_partitions": {topic: list(some) for topic, some in member.assigned.items()},
        "topics": member.topics,
        "session_timeout_ms": member.session_ms,
        "seen_at": member.seen_at,
    }


def _progress_shape(each: PartitionProgress) -> dict[str, object]:
    figures = {name: getattr(each, name) for name in (*_FIGURES, *_ENDS)}
    further = {"oldest_at": each.oldest_at, "next_due_at": each.next_due_at, "stuck": each.stuck}
    present = {name: found for name, found in further.items() if found is not None}
    return {"topic": each.topic, "partition": each.partition, **figures, **present}


def _lease_shape(each: PartitionProgress, lease: LeaseInfo) -> dict[str, object]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "token": lease.token,
        "owner": lease.owner,
        "offsets": lease.offsets,
        "granted_at": lease.granted_at,
        "expires_at": lease.expires_at,
        "suspect": lease.suspect,
    }


def _retries_shape(policy: RetryPolicy) -> dict[str, object]:
    from lakelog.model.group import Exponential

    if isinstance(policy, Exponential):
        return {
            "max": policy.max,
            "strategy": "exponential",
            "base_ms": round(policy.base_seconds * 1000),
            "max_ms": round(policy.max_seconds * 1000),
            "jitter": policy.jitter,
        }
    return {"max": policy.max, "strategy": "fixed", "base_ms": round(policy.seconds * 1000)}


def _seconds(seconds: float) -> str:
    return show_duration(timedelta(seconds=seconds))
