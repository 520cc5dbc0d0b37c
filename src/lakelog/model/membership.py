"""Membership: the partitions that a member of a group reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import field

from lakelog.model.structs import Identity, Name, Natural, Request, Value


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    """A heartbeat of a member, with the last generation that it received."""

    group: Name
    member_id: Identity
    generation: Natural


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
    """

    member_id: str
    generation: int
    assigned: Mapping[str, Sequence[int]] = field(name="assigned_partitions")
    heartbeat_ms: int = field(name="heartbeat_interval_ms")
    revoked: Mapping[str, Sequence[int]] = field(default_factory=dict, name="revoked_partitions")
    skipped_at_start: Mapping[str, int] = {}
