"""The JSON bodies about groups, members and dead letters, as structs that are checked while they are decoded.

As in `shapes`: durations are `_ms` integers, times RFC 3339 with an offset, an unknown field of a body is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from lakelog.model import limits
from lakelog.model.group import DEFAULT_SESSION_MS, MAX_SESSION_MS, MIN_SESSION_MS
from lakelog.wire.consume_shapes import Identity, PartitionNumber, Retries, Text, WishShape
from lakelog.wire.shapes import BodyShape, Name, Natural, ReplyShape, ShownShape

MessageIds = Annotated[list[Annotated[str, Meta(max_length=120)]], Meta(min_length=1, max_length=10_000)]


class Join(WishShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/join"""

    topics: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    member_id: Identity | None = None
    session_timeout_ms: Annotated[int, Meta(ge=MIN_SESSION_MS, le=MAX_SESSION_MS)] = DEFAULT_SESSION_MS
    kind: Literal["lease", "cursor"] | None = None
    client: Annotated[str, Meta(pattern="^[A-Za-z0-9._ -]{1,60}$")] | None = None
    """What kind of program joins; shown beside its address."""
    replace: bool = False
    """All other members leave in the same change."""


class Heartbeat(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/heartbeat"""

    member_id: Identity
    generation: Natural


class Leave(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/leave"""

    member_id: Identity


class MembershipShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a member is to read. It finishes and gives up `revoked_partitions` before its next heartbeat."""

    member_id: str
    generation: int
    assigned_partitions: dict[str, list[int]]
    heartbeat_interval_ms: int
    revoked_partitions: dict[str, list[int]] = {}
    skipped_at_start: dict[str, int] = {}
    """After a join, for each topic in which the join gave the group its first position: how many existing messages
    lie before that position."""


class MemberShape(ReplyShape, frozen=True, kw_only=True):
    member_id: str
    client_host: str
    assigned_partitions: dict[str, list[int]]
    topics: list[str]
    session_timeout_ms: int
    seen_at: datetime


class ProgressShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a group is in one partition. `reason` says why unfinished messages wait, if they do."""

    topic: str
    partition: int
    committed: int
    frontier: int
    log_start: int
    high_watermark: int
    epoch: int
    lag: int
    leased: int
    waiting: int
    skipped: int
    acked: int
    dead: int
    discarded: int
    filtered: int
    expired: int
    cut: int
    status: str
    oldest_at: datetime | None = None
    next_due_at: datetime | None = None
    reason: str | None = None


class GroupSettingsShape(ReplyShape, frozen=True, kw_only=True):
    order: str
    filter: str | None
    retries: Retries
    dead_letter: bool
    assignor: str
    window: int


class GroupShape(ReplyShape, frozen=True, kw_only=True):
    """A group and its settings. `paused` are topics; `*` means all."""

    group_id: str
    kind: str
    settings: GroupSettingsShape
    version: int
    paused: list[str]
    created_at: datetime


class GroupList(ReplyShape, frozen=True, kw_only=True):
    groups: list[GroupShape]


class GroupSummary(GroupShape, frozen=True, kw_only=True):
    """A group as the list has it. At most 10,000 dead letters are counted."""

    status: str
    lag: int
    oldest_at: datetime | None
    member_count: int
    dead_letters: int


class GroupSummaries(ReplyShape, frozen=True, kw_only=True):
    """GET /v1/groups"""

    groups: list[GroupSummary]
    next: str | None = None


class GroupDescribed(GroupShape, frozen=True, kw_only=True):
    """GET /v1/groups/{group}"""

    status: str
    state: str
    generation: int
    members: list[MemberShape]
    idle: list[str]
    rebalances: int
    last_rebalance_at: datetime | None
    rebalancing_ms: int
    progress: list[ProgressShape]
    dead_letters: int


class Lag(ReplyShape, frozen=True, kw_only=True):
    """GET /v1/groups/{group}/lag"""

    group_id: str
    lag: int
    partitions: list[ProgressShape]


class HeldShape(ReplyShape, frozen=True, kw_only=True):
    """A lease that is open. Runs of offsets are the first and the last, both included."""

    topic: str
    partition: int
    token: int
    owner: str
    offsets: list[list[int]]
    granted_at: datetime
    expires_at: datetime
    suspect: bool


class Held(ReplyShape, frozen=True, kw_only=True):
    """GET /v1/groups/{group}/leases"""

    group_id: str
    leases: list[HeldShape]


class Pause(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/pause and /resume: the topic, or all of them. The body may be left out."""

    topic: Name | None = None


class Seek(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/seek: one of `position`, `offset`, `timestamp` and `message_id`."""

    topic: Name
    position: Literal["earliest", "latest"] | None = None
    offset: Natural | None = None
    timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    message_id: Annotated[str, Meta(max_length=120)] | None = None
    partition: PartitionNumber | None = None
    dry_run: bool = False


class Moved(ReplyShape, frozen=True, kw_only=True):
    partition: int
    from_: int = msgspec.field(name="from")
    to: int


class Sought(ReplyShape, frozen=True, kw_only=True):
    """Where each partition's committed offset was, and is now (would be, in a dry run)."""

    dry_run: bool
    partitions: list[Moved]


class Skip(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/skip: give up what lies below the offset of a partition, without delivering it."""

    topic: Name
    partition: PartitionNumber
    offset: Natural
    dry_run: bool = False


class Skipped(ReplyShape, frozen=True, kw_only=True):
    """How many messages were skipped (would be, in a dry run). `leased` ones stay with their owners.

    `unreadable` are the first and the last offset of the damage that stopped the group, if there was any.
    """

    dry_run: bool
    partition: int
    offset: int
    messages: int
    leased: int
    unreadable: tuple[int, int] | None


class CommitPosition(BodyShape, frozen=True, kw_only=True):
    partition: PartitionNumber
    offset: Natural


class Commit(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/positions"""

    topic: Name
    positions: Annotated[list[CommitPosition], Meta(min_length=1, max_length=limits.MAX_PARTITIONS)]
    member_id: Identity | None = None
    generation: Natural | None = None
    epoch: Natural | None = None


class PositionShape(ReplyShape, frozen=True, kw_only=True):
    partition: int
    offset: int
    epoch: int


class Positions(ReplyShape, frozen=True, kw_only=True):
    """GET /v1/groups/{group}/positions"""

    topic: str
    positions: list[PositionShape]


class GroupStats(ReplyShape, frozen=True, kw_only=True):
    """A group on a topic: `pending` messages are leased or wait for a retry; `committed` is by partition."""

    group_id: str
    kind: str
    lag: int
    pending: int
    dead_letters: int
    committed: dict[int, int]


class TopicStats(ReplyShape, frozen=True, kw_only=True):
    """GET /v1/topics/{topic}/stats"""

    topic: str
    messages: int
    partitions: int
    oldest_at: datetime | None
    newest_at: datetime | None
    dead_letters: int
    groups: list[GroupStats]


class DeadLetterShape(ShownShape, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter, with its message as a fetch shows it. `error` is the last reason, `owner` the last owner."""

    topic: str
    partition: int
    epoch: int
    """The position epoch in which it died: after a seek a message may die once more."""
    state: str
    error: str
    deliveries: int
    failures: int
    dead_at: datetime
    owner: str
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that was appended for it."""
    traceback: str | None = None
    """Of the last failure, as the worker sent it."""
    without_message: bool = False
    """The message was out of reach already when it was given up: only where it was is known."""


class DeadLetterList(ReplyShape, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterShape]
    next: str | None = None


class Repaired(BodyShape, frozen=True, kw_only=True):
    """A value, headers, or both, to publish in place of the dead letter's own."""

    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    content_type: str | None = None
    headers: dict[str, str] | None = None


class Retry(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/dead-letters/{message_id}/retry. The body may be left out."""

    force: bool = False
    repaired: Repaired | None = None


class Redrive(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/dead-letters/redrive: by `message_ids`, or those that `topic` and `where` select."""

    message_ids: MessageIds | None = None
    topic: Name | None = None
    where: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    dry_run: bool = False
    force: bool = False
    max_redrives: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    """One that was redriven so often already is refused, unless it is forced."""
    values: dict[str, Repaired] | None = None


class RefusalShape(ReplyShape, frozen=True, kw_only=True):
    id: str
    reason: str


class RedrivenShape(ReplyShape, frozen=True, kw_only=True):
    """What was redriven, or would be in a dry run. `ids` and `refusals` are the first few; `has_more`: call again."""

    dry_run: bool
    redriven: int
    refused: int
    ids: list[str]
    refusals: list[RefusalShape]
    has_more: bool


class DiscardDead(BodyShape, frozen=True, kw_only=True):
    """POST /v1/groups/{group}/dead-letters/discard: the same selection."""

    message_ids: MessageIds | None = None
    topic: Name | None = None
    where: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


class Discarded(ReplyShape, frozen=True, kw_only=True):
    discarded: int
