"""Groups: their settings, start positions and topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from lakelog.model.dead_letter_retention import DeadLetterRetention, DeadLetterRetentionChange
from lakelog.model.kinds import Assignor as Assignor
from lakelog.model.kinds import GroupKind as GroupKind
from lakelog.model.kinds import Order as Order
from lakelog.model.limits import MAX_OWNER_BYTES as MAX_OWNER_BYTES
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.model.retries import MAX_RETRIES as MAX_RETRIES
from lakelog.model.retries import Exponential as Exponential
from lakelog.model.retries import Fixed as Fixed
from lakelog.model.retries import RetryPolicy as RetryPolicy
from lakelog.model.structs import Name, Natural, Request, Text, Value
from lakelog.model.times import parse_time
from lakelog.model.topic import Scope

DEFAULT_LEASE_MS = 30_000
DEFAULT_SESSION_MS = 30_000
DEFAULT_HEARTBEAT_MS = 10_000
MIN_LEASE_MS, MAX_LEASE_MS = 100, 12 * 3600 * 1000
MIN_SESSION_MS, MAX_SESSION_MS = 500, 30 * 60 * 1000
MAX_REASON_BYTES = 4096
MAX_WINDOW = 10_000


class NoStart:
    """The group does not read before a seek gives it a position."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoStart)

    def __hash__(self) -> int:
        return 0


Start = Earliest | Latest | AtTime | AtOffset | NoStart
"""The position at which a group starts in a topic that it has not read before."""
_LATEST = Latest()
_STARTS: dict[str, Start] = {"earliest": Earliest(), "latest": _LATEST, "none": NoStart()}


class GroupTopicSettings(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a group in one topic. None means the setting of the group.

    Attributes:
        filter: Which messages of the topic the group gets; an empty text means all.
        retries: How a failed message is delivered again.
        dead_letter: Whether a message that failed too often is kept as a dead letter.
    """

    filter: str | None = None
    retries: RetryPolicy | None = None
    dead_letter: bool | None = None

    def stated_by_name(self) -> dict[str, Any]:
        """Return the settings that the topic overrides, by name."""
        return {name: own for name, own in asdict(self).items() if own is not None}


class GroupSettings(Value, frozen=True, kw_only=True):
    """The settings of a group, which apply to all its members.

    Attributes:
        order: Which messages run one after another.
        filter: Which messages the group gets; None means all.
        retries: How a failed message is delivered again.
        dead_letter: Whether a message that failed too often is kept as a dead letter. With False, it is discarded.
        assignor: How partitions are shared among the members.
        window: The largest number of messages of one partition that are leased or wait for a retry, from 1 to 10,000.
        dead_letter_retention: How long and how many dead letters are kept. Default: all.
        topics: Settings of single topics, by name. They override those of the group.
    """

    order: Order = Order.KEY
    filter: str | None = None
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: bool = True
    assignor: Assignor = Assignor.COOPERATIVE
    window: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] = 2000
    dead_letter_retention: DeadLetterRetention = DeadLetterRetention()
    topics: Mapping[str, GroupTopicSettings] = {}

    def in_topic(self, topic: str) -> GroupSettings:
        """Return the settings that apply in the topic: those of the topic, and else those of the group.

        Args:
            topic: The name of the topic.
        """
        own = self.topics.get(topic)
        overridden = own.stated_by_name() if own is not None else {}
        if overridden.get("filter") == "":
            overridden["filter"] = None
        return replace(self, topics={}, **overridden)


class GroupInfo(Value, frozen=True, kw_only=True):
    """A group and its settings.

    Attributes:
        name: The name of the group.
        kind: Whether the group leases messages or commits positions.
        settings: The settings.
        version: A number that rises with every change of the settings, and with pause and resume.
        paused: The paused topics, sorted; `*` means all.
        created_at: When the group was created.
    """

    name: str = field(name="group_id")
    kind: GroupKind
    settings: GroupSettings
    version: int
    paused: tuple[str, ...]
    created_at: datetime


class RequestedSettings(Request, frozen=True, kw_only=True):
    """The settings of a group that a request states. None states nothing.

    Attributes:
        order: Which messages run one after another.
        filter: Which messages the group gets.
        retries: How a failed message is delivered again.
        dead_letter: Whether a message that failed too often is kept as a dead letter. With False, it is discarded.
        assignor: How partitions are shared among the members.
        window: The largest number of messages of one partition that are leased or wait for a retry, from 1 to 10,000.
    """

    order: Order | None = None
    filter: Text | None = None
    retries: RetryPolicy | None = None
    dead_letter: bool | None = None
    assignor: Assignor | None = None
    window: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] | None = None

    @property
    def stated(self) -> tuple[object, ...]:
        """The settings in the order of the fields, None for those that are not stated."""
        return (self.order, self.filter, self.retries, self.dead_letter, self.assignor, self.window)

    def stated_by_name(self) -> dict[str, Any]:
        """Return the settings that are stated, by name."""
        named = zip(RequestedSettings.__struct_fields__, self.stated, strict=True)
        return {name: wanted for name, wanted in named if wanted is not None}

    @property
    def stated_topics(self) -> tuple[str, ...]:
        """The topics for which a filter, retries and dead letters are stated. Without a topic, they are the group's."""
        return ()


class AlterGroupRequest(RequestedSettings, frozen=True, kw_only=True):
    """New settings for a group. None does not change a setting; an empty filter removes the filter.

    Attributes:
        group: The name of the group.
        dead_letter_retention: How long and how many dead letters are kept. Consumers do not state it, because it does
            not change which messages they get.
        topic: Change the settings of this topic only, which override those of the group: `filter`, `retries` and
            `dead_letter`. Default: the settings of the group.
        inherit: Remove the topic's own settings first, so that those of the group apply to it again.
    """

    group: Name
    dead_letter_retention: DeadLetterRetentionChange = DeadLetterRetentionChange()
    topic: Name | None = None
    inherit: bool = False


class NewGroupSettings(RequestedSettings, frozen=True, kw_only=True):
    """The settings that a consume or a join states: they create a missing group, and must match an existing one.

    Attributes:
        start_from: Where the group begins in a topic that it has not read before: "earliest", "latest", "none" (wait
            for a seek), an offset, or a time in RFC 3339. Default: "latest".
    """

    start_from: Natural | Annotated[str, Meta(max_length=40)] | None = None

    def __post_init__(self) -> None:
        if self.start_from is not None:
            _ = self.start

    @property
    def start(self) -> Start:
        """The position of `start_from`."""
        given = self.start_from
        if given is None:
            return _LATEST
        if isinstance(given, int):
            return AtOffset(given)
        if (found := _STARTS.get(given)) is not None:
            return found
        if given.isascii() and given.isdigit() and len(given) < 19:
            return AtOffset(int(given))
        return AtTime(parse_time("start_from", given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group in the catalog. `cell` holds its membership."""

    group_id: int
    scope: Scope
    name: str
    kind: GroupKind
    settings: GroupSettings
    version: int
    """A number that rises with every change of the settings, and with pause and resume."""
    cell: int
    paused: frozenset[str]
    """Paused topics by name; `*` means all."""
    created_at: datetime

    def is_paused(self, topic: str) -> bool:
        """Return whether the group does not deliver messages of the topic."""
        return topic in self.paused or "*" in self.paused

    def shown_settings(self) -> GroupSettings:
        """Return the settings without the entries of topics that override nothing."""
        topics = {topic: own for topic, own in self.settings.topics.items() if own != GroupTopicSettings()}
        return replace(self.settings, topics=topics)

    def stated(self) -> dict[str, Any]:
        """Return the fields of `GroupInfo`, which other values include too."""
        return {
            "name": self.name,
            "kind": self.kind,
            "settings": self.shown_settings(),
            "version": self.version,
            "paused": tuple(sorted(self.paused)),
            "created_at": self.created_at,
        }

    def info(self) -> GroupInfo:
        """Return the group as callers see it."""
        return GroupInfo(**self.stated())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopic:
    """A topic that a group reads. It is decided once, in the catalog, for all partitions.

    `starts[n]` is the first offset in partition n; a partition that is added later starts at 0. A seek raises `epoch`
    and sets `targets` (None: the partition does not move). The seek is complete when every partition's journal has
    reached the epoch.

    `timelines[n]` is the timeline of the cell of partition n when its start or target was read from the log; 0 or
    missing if that is unknown.
    """

    group_id: int
    incarnation: int
    starts: tuple[int, ...]
    epoch: int = 0
    targets: tuple[int | None, ...] = ()
    timelines: tuple[int, ...] = ()

    def start(self, partition: int) -> int:
        return self.starts[partition] if partition < len(self.starts) else 0

    def target(self, partition: int) -> int | None:
        """Return where the last seek puts the partition; None if the seek does not move it."""
        return self.targets[partition] if partition < len(self.targets) else None

    def timeline(self, partition: int) -> int:
        """Return the timeline on which the start or target was decided; 0 if that is unknown."""
        return self.timelines[partition] if partition < len(self.timelines) else 0

    def is_from_before(self, partition: int, offset: int, timeline: int) -> bool:
        """Return whether the group was put at this offset on an earlier timeline."""
        target = self.target(partition)
        decided_at = self.start(partition) if target is None else target
        return 0 < self.timeline(partition) < timeline and offset == decided_at
