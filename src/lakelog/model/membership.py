"""Membership: the partitions that a member of a group reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, field

from lakelog.model.group import (
    DEFAULT_SESSION_MS,
    MAX_SESSION_MS,
    MIN_SESSION_MS,
    GroupKind,
    GroupSettings,
    NewGroupSettings,
)
from lakelog.model.limits import MAX_JOINED_TOPICS
from lakelog.model.structs import Identity, Name, Natural, Request, Value


class JoinRequest(NewGroupSettings, frozen=True, kw_only=True):
    """A member that wants to read topics. Joining again with the same id changes its topics and settings only.

    Attributes:
        group: The name of the group.
        topics: The topics that the member reads, at most 100.
        member_id: The id of the member. Default: the engine makes one up.
        session_ms: The time without a sign of life after which the member is removed.
        kind: Whether the group leases messages or commits positions.
        client: The kind of program that joins; shown with its address.
        replaces: Whether all other members leave in the same change. Their calls are refused from then on.
    """

    group: Name
    topics: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_JOINED_TOPICS)]
    member_id: Identity | None = None
    session_ms: Annotated[int, Meta(ge=MIN_SESSION_MS, le=MAX_SESSION_MS)] = field(
        default=DEFAULT_SESSION_MS, name="session_timeout_ms"
    )
    kind: GroupKind | None = None
    client: Annotated[str, Meta(pattern="^[A-Za-z0-9._ -]{1,60}$")] | None = None
    replaces: bool = field(default=False, name="replace")

    @property
    def stated_topics(self) -> tuple[str, ...]:
        """The topics that the member reads."""
        return self.topics


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    """A heartbeat of a member, with the last generation that it received.

    Attributes:
        group: The name of the group.
        member_id: The id of the member.
        generation: The last generation that the member received.
        client: The program of the member, instead of the one with which it joined; shown with its address.
    """

    group: Name
    member_id: Identity
    generation: Natural
    client: Annotated[str, Meta(pattern="^[A-Za-z0-9._ :,-]{1,150}$")] | None = None


class LeaveRequest(Request, frozen=True, kw_only=True):
    """A member that leaves its group."""

    group: Name
    member_id: Identity


class Membership(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The partitions that a member reads in a generation.

    Attributes:
        member_id: The id of the member.
        generation: The generation of the group.
        assigned: The assigned partitions, by topic.
        heartbeat_ms: The time until the next heartbeat.
        revoked: The partitions that the member finishes and gives up before its next heartbeat, by topic.
        skipped_at_start: In the reply to a join, the topics in which this join gave the group its first position, and
            how many existing messages lie before that position. A topic that the group already reads is missing.
        settings: In the reply to a join, the settings of the group. None in other replies.
    """

    member_id: str
    generation: int
    assigned: Mapping[str, Sequence[int]] = field(name="assigned_partitions")
    heartbeat_ms: int = field(name="heartbeat_interval_ms")
    revoked: Mapping[str, Sequence[int]] = field(default_factory=dict, name="revoked_partitions")
    skipped_at_start: Mapping[str, int] = {}
    settings: GroupSettings | None = None
