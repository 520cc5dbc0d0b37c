"""Groups: what readers that share progress agree on, and how a failed message is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from lakelog.errors import GroupSettingsDiffer
from lakelog.model.arguments import check_number, check_whole
from lakelog.model.kinds import Assignor as Assignor
from lakelog.model.kinds import GroupKind as GroupKind
from lakelog.model.kinds import Order as Order
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.model.topic import Scope

DEFAULT_LEASE_MS = 30_000
DEFAULT_SESSION_MS = 30_000
DEFAULT_HEARTBEAT_MS = 10_000
MIN_LEASE_MS, MAX_LEASE_MS = 100, 12 * 3600 * 1000
MIN_SESSION_MS, MAX_SESSION_MS = 500, 30 * 60 * 1000
MAX_OWNER_BYTES = 200
MAX_REASON_BYTES = 4096
MAX_RETRIES = 1000
MAX_RETRY_SECONDS = 86_400
MAX_WINDOW = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """A retry policy with growing delays: `base_seconds` after the first failure, doubled after each further one.

    Args:
        max: How often a message is delivered again, from 0 to 1000. Default: 3, so that the fourth failure is the last.
        base_seconds: The delay after the first failure, in seconds, from 0 to 86,400. Default: 1.
        max_seconds: The longest delay, in seconds, from 0 to 86,400. Default: 60.
        jitter: The share of the delay that is taken away at random, from 0 to 1, so that messages that failed together
            do not come back together. Default: 0.2.
    """

    max: int = 3
    base_seconds: float = 1.0
    max_seconds: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_whole("max", self.max, 0, MAX_RETRIES)
        check_number("base_seconds", self.base_seconds, 0, MAX_RETRY_SECONDS)
        check_number("max_seconds", self.max_seconds, 0, MAX_RETRY_SECONDS)
        check_number("jitter", self.jitter, 0, 1)

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the delay in milliseconds.

        Args:
            failures: How often the message has failed, from 1.
            chance: A random number from 0 to 1, for the jitter.
        """
        seconds = min(self.base_seconds * 2.0 ** min(failures - 1, 40), self.max_seconds)
        return round(1000 * seconds * (1 - self.jitter * chance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A retry policy with the same delay after each failure.

    Args:
        max: How often a message is delivered again, from 0 to 1000. Default: 3.
        seconds: The delay in seconds, from 0 to 86,400. Default: 1.
    """

    max: int = 3
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_whole("max", self.max, 0, MAX_RETRIES)
        check_number("seconds", self.seconds, 0, MAX_RETRY_SECONDS)

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the delay in milliseconds.

        Args:
            failures: How often the message has failed; not used.
            chance: A random number from 0 to 1; not used.
        """
        return round(1000 * self.seconds)


RetryPolicy = Exponential | Fixed


class NoStart:
    """The group has to be given a position by a seek before it reads."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoStart)

    def __hash__(self) -> int:
        return 0


Start = Earliest | Latest | AtTime | AtOffset | NoStart
"""Where a group begins in a topic that it has not read before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What holds for all members of a group."""

    order: Order = Order.KEY
    filter: str | None = None
    retries: RetryPolicy = field(default_factory=Exponential)
    dead_letter: bool = True
    """Whether a message that failed too often is kept as a dead letter; else it ends as discarded."""
    assignor: Assignor = Assignor.COOPERATIVE
    window: int = 2000
    """At most so many messages of a partition are leased or wait for a retry."""

    def __post_init__(self) -> None:
        check_whole("window", self.window, 1, MAX_WINDOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWish:
    """What a caller says about a group: it makes the group if there is none, and has to agree with one that exists.

    None says nothing. `start` counts only where the group has not read the topic before.
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
        """The settings of a group that this wish creates."""
        return replace(GroupSettings(), **self._stated())

    def check(self, group: Group) -> None:
        """Refuses a wish that differs from the group: naming both, and the way to change it."""
        for name, wanted in self._stated().items():
            present = getattr(group.settings, name)
            if wanted != present:
                raise GroupSettingsDiffer(
                    f"Group '{group.name}' has {name} {present!s}, and this caller wants {wanted!s}. "
                    f"Change the caller, or the group with `lakelog groups alter {group.name}`.",
                    group=group.name,
                    setting=name,
                )

    def _stated(self) -> dict[str, Any]:
        stated = {each.name: getattr(self, each.name) for each in fields(GroupSettings)}
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
    """Rises with every change of the settings, and with pause and resume."""
    cell: int
    paused: frozenset[str]
    """Paused topics by name; `*` means all."""
    created_at: datetime

    def is_paused(self, topic: str) -> bool:
        return topic in self.paused or "*" in self.paused


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """What a skip did, or would do in a dry run.

    Attributes:
        partition: The number of the partition.
        offset: The offset to which the group moves.
        messages: How many messages are skipped: they are counted as `cut`.
        leased: How many messages below the offset are leased, and stay with their owners.
        unreadable: The first and the last offset of what stops the group: the file of their segment is damaged or
            missing. None if the next message can be read.
    """

    partition: int
    offset: int
    messages: int
    leased: int
    unreadable: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopic:
    """That a group reads a topic: decided once, in the catalog, for all partitions.

    `starts[n]` is where it begins in partition n; a partition born later begins at 0. A seek raises `epoch` and names
    `targets` (None: that partition stays where it is); it holds when every partition's journal has reached the epoch.
    """

    group_id: int
    incarnation: int
    starts: tuple[int, ...]
    epoch: int = 0
    targets: tuple[int | None, ...] = ()

    def start(self, partition: int) -> int:
        return self.starts[partition] if partition < len(self.starts) else 0
