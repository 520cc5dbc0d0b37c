"""Descriptions of groups and topics: settings, members, progress by partition, leases, and figures of a topic.

The engine builds these values, HTTP carries them as JSON, and the client returns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from lakelog.model.group import GroupInfo
from lakelog.model.ranges import to_ranges
from lakelog.model.structs import Name, Request, Value
from lakelog.model.stuck import Stuck
from lakelog.model.topic_info import TopicInfo

MAX_GROUP_PAGE = 1000
MAX_EXPLAINED = 10


class GroupSummary(GroupInfo, frozen=True, kw_only=True):
    """A group in a list: its settings and its progress.

    Attributes:
        status: The status of the group; see `GroupDescription`.
        lag: How many messages are not finished.
        oldest_at: When the oldest unfinished message was published; for a message in a cold segment, when that
            segment begins. None if there is no such message.
        member_count: How many members the group has.
        dead_letters: How many dead letters the group has now. No more than 10,000 are counted.
        lags: The lag in the last hour, every five minutes, the oldest first. It is None where no process took a sample.
            Empty if there is no sample. None if it was not asked for.
        stuck: Why messages wait, the most important cause first; see `GroupDescription`. None if it was not asked for.
    """

    status: str
    lag: int
    oldest_at: datetime | None
    member_count: int
    dead_letters: int
    lags: Sequence[int | None] | None = None
    stuck: tuple[Stuck, ...] | None = None


class GroupQuery(Request, frozen=True, kw_only=True):
    """A request for groups, by name."""

    after: (
        Annotated[
            Name, Meta(description="Only groups whose names come after this one: the `next` of the previous page.")
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=MAX_GROUP_PAGE, description="The largest number of groups to return.")] = (
        MAX_GROUP_PAGE
    )
    lags: Annotated[bool, Meta(description="Whether each group has its lags of the last hour.")] = False
    contains: Annotated[str, Meta(max_length=120, description="Only groups whose names contain this text.")] = ""
    explained: Annotated[
        int, Meta(ge=0, le=MAX_EXPLAINED, description="How many of the groups that need attention say why they wait.")
    ] = 0


class GroupPage(Value, frozen=True, kw_only=True):
    """A page of groups. Call again with `next` as `after`, until it is None."""

    groups: Sequence[GroupSummary]
    next: str | None = None


class GroupRequest(Request, frozen=True, kw_only=True):
    """A group to describe or to delete."""

    group: Name


class GroupTopicQuery(Request, frozen=True, kw_only=True):
    """A group, and the only topic of interest."""

    group: Name
    topic: Annotated[Name, Meta(description="Only this topic.")] | None = None


class PauseRequest(Request, frozen=True, kw_only=True):
    """A group to pause or resume: in one topic, or in all."""

    group: Name
    topic: Name | None = None


class TopicGroupsRequest(Request, frozen=True, kw_only=True):
    """A topic whose groups are all paused or resumed."""

    topic: Name


class TopicStatsRequest(Request, frozen=True, kw_only=True):
    """A topic whose figures are asked for."""

    topic: Name
    described: Annotated[bool, Meta(description="Whether the reply has the description of the topic too.")] = False


class GroupList(Value, frozen=True, kw_only=True):
    """The groups that an operation on a topic changed."""

    groups: Sequence[GroupInfo]


class MemberInfo(Value, frozen=True, kw_only=True):
    """A member of a group, and the partitions that are assigned to it.

    Attributes:
        member_id: The id of the member.
        client_host: The address of the member, and the program that it runs.
        topics: The topics that the member reads.
        assigned: The assigned partitions, by topic.
        session_ms: After this time without a heartbeat, the member is removed.
        seen_at: When the member was last seen.
    """

    member_id: str
    client_host: str
    assigned: Mapping[str, Sequence[int]] = field(name="assigned_partitions")
    topics: tuple[str, ...]
    session_ms: int = field(name="session_timeout_ms")
    seen_at: datetime


class LeaseInfo(Value, frozen=True, kw_only=True):
    """An open lease: its owner and its messages.

    Attributes:
        topic: The topic of the messages.
        partition: The partition of the messages.
        token: The number of the lease, which rises with each lease of the partition.
        owner: The consumer that holds the lease.
        offsets: Runs of offsets as (first, last) pairs, both included.
        granted_at: When the lease began.
        expires_at: When the lease ends, unless it is extended.
        suspect: True if the last lease of the message expired.
    """

    topic: str
    partition: int
    token: int
    owner: str
    offsets: tuple[tuple[int, int], ...]
    granted_at: datetime
    expires_at: datetime
    suspect: bool = False


class LeaseList(Value, frozen=True, kw_only=True):
    """The open leases of a group."""

    group_id: str
    leases: Sequence[LeaseInfo]


class PartitionProgress(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a group in one partition, and why unfinished messages wait, if they do.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        committed: All messages below this offset are finished. It is below the log start if retention removed messages
            that the group has not read.
        frontier: The offset of the first message that the group has not considered yet.
        log_start: The offset of the first message that can be read.
        high_watermark: The offset that the next message will get.
        epoch: The position epoch, which rises with each seek.
        lag: How many messages are not finished: not considered yet, skipped, leased or waiting.
        leased: How many messages are leased.
        waiting: How many messages wait for a retry.
        skipped: How many messages wait behind another message with the same key.
        acked: How many messages were acked since the last seek.
        dead: How many messages became dead letters since the last seek, including those redriven or discarded later.
        discarded: How many messages were discarded since the last seek.
        filtered: How many messages the group's filter left out, or repeated a value (`once`), since the last seek.
        expired: How many messages expired before they were delivered since the last seek.
        cut: How many messages were removed by retention or skipped since the last seek.
        status: `caught-up`, `working`, `queued`, `retrying`, `full`, `rebalancing`, `paused`, `no-consumer`,
            `no-position` or `unreadable`.
        oldest_at: When the oldest unfinished message was published; None if there is none.
        next_due_at: When the next retry is due; None if there is none.
        leases: The open leases.
        stuck: Why the group is stuck in the partition; None if it is not.
    """

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
    leases: tuple[LeaseInfo, ...] = ()
    stuck: Stuck | None = None

    @property
    def reason(self) -> str | None:
        """Why the group is stuck in the partition, as a sentence; None if it is not."""
        return None if self.stuck is None else self.stuck.text


class GroupLag(Value, frozen=True, kw_only=True):
    """The number of messages that a group has not finished, in total and by partition."""

    group_id: str
    lag: int
    partitions: Sequence[PartitionProgress]


class GroupDescription(GroupInfo, frozen=True, kw_only=True):
    """The full description of a group: members, progress, leases, and why unfinished messages wait.

    Attributes:
        status: The most important status of its partitions: `no-consumer`, `full`, `working`, …, `caught-up`; or
            `paused`.
        state: The state of its members: `empty`, `stable` or `rebalancing`.
        generation: The generation of its members, which rises with each change of the assignment.
        members: The members.
        idle: The ids of members without a partition.
        rebalances: How often the assignment has changed.
        last_rebalance_at: When the assignment last changed; None if it never did.
        rebalancing_ms: The total time that partitions waited for their next member.
        progress: The progress in each partition.
        dead_letters: How many dead letters there are now, without those redriven or discarded.
        stuck: Why the group is stuck, the most important cause first. The only one is `nothing_wrong` if it is
            not.
    """

    status: str
    state: str
    generation: int
    members: tuple[MemberInfo, ...]
    idle: tuple[str, ...]
    rebalances: int
    last_rebalance_at: datetime | None
    rebalancing_ms: int
    progress: tuple[PartitionProgress, ...]
    dead_letters: int
    stuck: tuple[Stuck, ...] = ()

    @property
    def group(self) -> GroupInfo:
        """The group and its settings."""
        return self

    @property
    def lag(self) -> int:
        """How many messages are not finished."""
        return sum(each.lag for each in self.progress)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why unfinished messages wait: one line for all partitions with the same reason."""
        places: dict[str, dict[str, list[int]]] = {}
        for each in self.progress:
            if each.reason:
                places.setdefault(each.reason, {}).setdefault(each.topic, []).append(each.partition)
        return tuple(f"{show_partitions(some)}: {reason}" for reason, some in places.items())

    def __str__(self) -> str:
        """Return a summary for display."""
        leases = sum(len(each.leases) for each in self.progress)
        paused = f", paused: {', '.join(self.paused)}" if self.paused else ""
        lines = [
            f"group {self.name} ({self.kind}, {self.status}{paused}): {len(self.members)} members, "
            f"lag {self.lag}, {leases} leases, {self.dead_letters} dead letters"
        ]
        lines += [
            f"  member {each.member_id} on {each.client_host}: {show_partitions(each.assigned) or 'idle'}"
            for each in self.members
        ]
        for each in self.progress:
            if each.lag or each.leases:
                lines.append(f"  {each.topic}/{each.partition}: {each.committed} of {each.high_watermark}")
            lines += [
                f"    leased to {lease.owner}: {show_ranges(lease.offsets)} until {lease.expires_at}"
                for lease in each.leases
            ]
        return "\n".join([*lines, *(f"  waiting: {reason}" for reason in self.reasons)])


class GroupStats(Value, frozen=True, kw_only=True):
    """The figures of a group in one topic.

    Attributes:
        group: The name of the group.
        kind: The kind of the group.
        lag: How many messages are not finished.
        pending: How many messages are leased or wait for a retry.
        dead_letters: How many dead letters there are now.
        committed: The committed offset, by partition.
    """

    group: str = field(name="group_id")
    kind: str
    lag: int
    pending: int
    dead_letters: int
    committed: Mapping[int, int]


class TopicStats(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of a topic.

    Attributes:
        topic: The name of the topic.
        messages: How many messages can be read.
        partitions: How many partitions the topic has.
        oldest_at: When the oldest message was appended; None if there is none.
        newest_at: When the newest message was appended; None if there is none.
        dead_letters: How many dead letters its groups have.
        groups: The figures of each group that reads the topic.
        described: The description of the topic, with its partitions. None if it was not asked for.
    """

    topic: str
    messages: int
    partitions: int
    oldest_at: datetime | None
    newest_at: datetime | None
    dead_letters: int
    groups: tuple[GroupStats, ...]
    described: TopicInfo | None = None


def show_partitions(partitions: Mapping[str, Sequence[int]]) -> str:
    """Return partitions by topic as text: `orders/0-3,7 refunds/0`."""
    return " ".join(f"{topic}/{show_ranges(to_ranges(some), ',')}" for topic, some in partitions.items() if some)


def show_ranges(ranges: Iterable[Sequence[int]], comma: str = ", ") -> str:
    """Return ranges of numbers, both ends included, as text: `3, 5-9`."""
    return comma.join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
