"""What the calls about groups take and give: plain frozen values. A group's settings are in `lakelog.model.group`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from lakelog.errors import LakelogError
from lakelog.model.group import DEFAULT_LEASE_MS, DEFAULT_SESSION_MS, GroupKind, GroupSettings, GroupWish
from lakelog.model.repair import Repair
from lakelog.wire.leases import LeaseHead, LeasesHead, to_ranges

Payload = bytes | memoryview
Verb = Literal["ack", "ack_through", "nack", "release", "fail", "discard", "extend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeWish:
    """One call for messages. A repeat with the same owner and request id gets the leases of the first try again."""

    topic: str
    group: str
    owner: str
    request_id: str
    max_messages: int = 1
    lease_ms: int = DEFAULT_LEASE_MS
    wait_seconds: float = 0.0
    member_id: str | None = None
    generation: int | None = None
    isolates: bool = False
    """The caller runs a suspect alone in its process, and says so by an extend (`alone`)."""
    repeat: bool = False
    """The call was sent before with the same request id, and its answer was lost. The server searches all partitions
    for its leases first, because another server may have granted them."""
    answers: tuple[Answer, ...] = ()
    """What the owner says about leases that it holds: decided first, in the same commit as the take. A call with
    answers does not wait for messages, whatever `wait_seconds` says: it returns as soon as the answers are decided."""
    wish: GroupWish = field(default_factory=GroupWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Leases before their messages are decoded: `payloads` are those of all pieces, in the head's order."""

    head: LeasesHead
    payloads: Sequence[Payload]
    answered: Sequence[Answered | LakelogError] = ()
    """One outcome for each of the wish's answers, in order."""

    @property
    def leases(self) -> Sequence[LeaseHead]:
        return self.head.leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One thing that an owner says about messages of one lease; an extend is about the lease, and names none."""

    verb: Verb
    partition: int
    token: int | None
    offsets: tuple[int, ...] = ()
    delay_ms: int | None = None
    reason: str = ""
    traceback: str | None = None
    lease_ms: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What became of an answer: `dead` says which messages it made dead letters."""

    expires_ms: int | None = None
    dead: tuple[int, ...] = ()
    retry_in_ms: int | None = None
    """Of a nack: the time until the next attempt; None if the server did not say."""
    max_attempts: int | None = None
    """Of a nack: the failures after which the group's retry policy gives a message up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWish:
    """A member that wants to read these topics. Joining again with the same id is harmless.

    `client` says what kind of program it is, to be shown beside its host. `replace`: all other members leave.
    """

    group: str
    topics: tuple[str, ...]
    member_id: str
    session_ms: int = DEFAULT_SESSION_MS
    client_host: str = ""
    client: str | None = None
    replace: bool = False
    wish: GroupWish = field(default_factory=GroupWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A member's view of its group in a generation; partitions by topic."""

    member_id: str
    generation: int
    assigned: Mapping[str, Sequence[int]]
    revoked: Mapping[str, Sequence[int]] = field(default_factory=dict)
    heartbeat_ms: int = 10_000
    skipped_at_start: Mapping[str, int] = field(default_factory=dict)
    """In the answer to a join: the topics in which this join gave the group its first position, and how many existing
    messages lie before that position. A topic that the group already reads is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group and its settings. `paused` has topics by name; `*` means all."""

    name: str
    kind: GroupKind
    settings: GroupSettings
    version: int
    paused: frozenset[str]
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary(GroupInfo):
    """A group as it is listed: its settings, and how far it is."""

    status: str
    """As in `GroupDescription`."""
    lag: int
    """How many messages are not finished."""
    oldest_at: datetime | None
    """When the oldest unfinished message was published; of one in a cold segment, when that segment begins."""
    member_count: int
    dead_letters: int
    """How many there are now. No more than 10,000 are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """Some groups; ask again with `next` as `after`, until it is None."""

    groups: Sequence[GroupSummary]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A member of a group, and the partitions that it is to read."""

    member_id: str
    client_host: str
    topics: tuple[str, ...]
    assigned: Mapping[str, Sequence[int]]
    session_ms: int
    seen_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseInfo:
    """Who holds which messages; `offsets` are (first, last) pairs, both included."""

    token: int
    owner: str
    offsets: tuple[tuple[int, int], ...]
    granted_at: datetime | None
    expires_at: datetime | None
    suspect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a group is in one partition, what it is doing there, and why unfinished messages wait, if they do."""

    topic: str
    partition: int
    committed: int
    """Below the log start, where retention went past a group that did not go on since."""
    high_watermark: int
    lag: int
    """Messages that are not finished."""
    frontier: int = 0
    log_start: int = 0
    epoch: int = 0
    leased: int = 0
    waiting: int = 0
    skipped: int = 0
    acked: int = 0
    dead: int = 0
    """How many messages became dead letters since the last seek, also those redriven or discarded by now."""
    discarded: int = 0
    filtered: int = 0
    expired: int = 0
    cut: int = 0
    status: str = "caught-up"
    """`caught-up`, `working`, `queued`, `retrying`, `full`, `rebalancing`, `paused`, `no-consumer`, `no-position`."""
    oldest_at: datetime | None = None
    next_due_at: datetime | None = None
    leases: tuple[LeaseInfo, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """All that is known of a group: members, progress, who holds what, and why unfinished messages wait."""

    group: GroupInfo
    status: str
    """The one of its partitions' that matters most: `no-consumer`, `full`, `working`, …, `caught-up`; or `paused`."""
    state: str
    """Of its members: `empty`, `stable` or `rebalancing`."""
    generation: int
    members: tuple[MemberInfo, ...]
    idle: tuple[str, ...]
    """Members without a partition."""
    progress: tuple[PartitionProgress, ...]
    dead_letters: int
    """How many there are now: those redriven or discarded are left out."""
    rebalances: int = 0

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.progress)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why unfinished messages wait: one line for all partitions with the same reason."""
        places: dict[str, dict[str, list[int]]] = {}
        for each in self.progress:
            if each.reason:
                places.setdefault(each.reason, {}).setdefault(each.topic, []).append(each.partition)
        return tuple(f"{show_partitions(some)}: {reason}" for reason, some in places.items())

    def __str__(self) -> str:
        """For a person who prints it."""
        leases = sum(len(each.leases) for each in self.progress)
        paused = f", paused: {', '.join(sorted(self.group.paused))}" if self.group.paused else ""
        lines = [
            f"group {self.group.name} ({self.group.kind}, {self.status}{paused}): {len(self.members)} members, "
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


def show_partitions(partitions: Mapping[str, Sequence[int]]) -> str:
    """Return partitions by topic as text: `orders/0-3,7 refunds/0`."""
    return " ".join(f"{topic}/{show_ranges(to_ranges(some), ',')}" for topic, some in partitions.items() if some)


def show_ranges(ranges: Iterable[Sequence[int]], comma: str = ", ") -> str:
    """Return ranges of numbers, both ends included, as text: `3, 5-9`."""
    return comma.join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


class Position(NamedTuple):
    """Where a cursor group is in a partition: the offset to read next. A seek raises the epoch."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWish:
    """Positions that a cursor group has reached: the offset to read next, by partition.

    With a member and its generation, one that was replaced is refused; with an epoch, one that a seek overtook.
    """

    topic: str
    positions: Mapping[int, int]
    member_id: str | None = None
    generation: int | None = None
    epoch: int | None = None


class Sought(NamedTuple):
    """One partition of a seek: where the group was, and where it goes on."""

    partition: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that a group has given up, with the reason."""

    id: str
    topic: str
    partition: int
    offset: int
    error: str
    deliveries: int
    failures: int
    at: datetime | None
    owner: str
    state: str
    key: bytes | None = None
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    epoch: int = 0
    """The position epoch in which it died."""
    lineage: str | None = None
    redriven_to: str | None = None
    """The id of the message that was published for it."""
    traceback: str | None = None
    """Traceback of the last failure, at most 8 KiB; None if the worker sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadWish:
    """Which dead letters are meant."""

    topic: str | None = None
    partition: int | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    state: str = "dead"
    after: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPage:
    """Some dead letters; ask again with `next` as `after`, until it is None."""

    letters: Sequence[DeadLetter]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive did, or, as a dry run, would do. `ids` and `refusals` (id and why) are the first few of each."""

    redriven: int = 0
    refused: int = 0
    ids: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    has_more: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWish:
    """Which dead letters are published again: those named, or those that `topic` and `where` select."""

    topic: str | None = None
    where: str | None = None
    message_ids: tuple[str, ...] | None = None
    limit: int = 10_000
    dry_run: bool = False
    force: bool = False
    max_redrives: int = 3
    repaired: Mapping[str, Repair] | None = None
    """Changes by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """A group on a topic: `pending` messages are leased or wait for a retry; `committed` is by partition."""

    group: str
    lag: int
    pending: int
    dead_letters: int
    committed: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """A topic in numbers."""

    messages: int
    partitions: int
    oldest_at: datetime | None
    newest_at: datetime | None
    groups: tuple[GroupStats, ...]
