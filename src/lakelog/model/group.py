"""Groups: their settings, start positions and topics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.structs import replace

from lakelog.errors import GroupSettingsDiffer
from lakelog.model.kinds import Assignor as Assignor
from lakelog.model.kinds import GroupKind as GroupKind
from lakelog.model.kinds import Order as Order
from lakelog.model.limits import MAX_OWNER_BYTES as MAX_OWNER_BYTES
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.model.retries import MAX_RETRIES as MAX_RETRIES
from lakelog.model.retries import Exponential as Exponential
from lakelog.model.retries import Fixed as Fixed
from lakelog.model.retries import RetryPolicy as RetryPolicy
from lakelog.model.structs import Name, Request, Text, Value
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


class GroupSettings(Value, frozen=True, kw_only=True):
    """The settings of a group, which apply to all its members.

    Attributes:
        order: Which messages run one after another.
        filter: Which messages the group gets; None means all.
        retries: How a failed message is delivered again.
        dead_letter: Whether a message that failed too often is kept as a dead letter. With False, it is discarded.
        assignor: How partitions are shared among the members.
        window: The largest number of messages of one partition that are leased or wait for a retry, from 1 to 10,000.
    """

    order: Order = Order.KEY
    filter: str | None = None
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: bool = True
    assignor: Assignor = Assignor.COOPERATIVE
    window: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] = 2000


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


class AlterGroupRequest(Request, frozen=True, kw_only=True):
    """New settings for a group. None does not change a setting; an empty filter removes the filter."""

    group: Name
    order: Order | None = None
    filter: Text | None = None
    retries: RetryPolicy | None = None
    dead_letter: bool | None = None
    assignor: Assignor | None = None
    window: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] | None = None

    def wish(self) -> GroupWish:
        """Return the settings that are given."""
        return GroupWish(**{name: getattr(self, name) for name in GroupSettings.__struct_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWish:
    """The settings that a caller states: they create a missing group, and must match an existing one.

    None accepts any setting. `start` applies only if the group has not read the topic before.
    """

    kind: GroupKind | None = None
    order: Order | None = None
    filter: str | None = None
    retries: RetryPolicy | None = None
    dead_letter: bool | None = None
    assignor: Assignor | None = None
    window: int | None = None
    start: Start | None = None

    def settings(self) -> GroupSettings:
        """Return the settings of a group that is created with these values."""
        return replace(GroupSettings(), **self.stated())

    def check(self, group: Group) -> None:
        """Raise `GroupSettingsDiffer` if the group has other settings. The error names both values."""
        for name, wanted in self.stated().items():
            present = getattr(group.settings, name)
            if wanted != present:
                raise GroupSettingsDiffer(
                    f"Group '{group.name}' has {name} {present!s}, and this caller wants {wanted!s}. "
                    f"Change the caller, or the group with `lakelog groups alter {group.name}`.",
                    group=group.name,
                    setting=name,
                )

    def stated(self) -> dict[str, Any]:
        """Return the settings that are given, by name."""
        stated = {name: getattr(self, name) for name in GroupSettings.__struct_fields__}
        return {name: wanted for name, wanted in stated.items() if wanted is not None}


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

    def stated(self) -> dict[str, Any]:
        """Return the fields of `GroupInfo`, for it and the values that extend it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "settings": self.settings,
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
    """

    group_id: int
    incarnation: int
    starts: tuple[int, ...]
    epoch: int = 0
    targets: tuple[int | None, ...] = ()

    def start(self, partition: int) -> int:
        return self.starts[partition] if partition < len(self.starts) else 0
