"""Groups: what readers that share progress agree on, and how a failed message is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from lakelog.errors import GroupSettingsDiffer, InvalidRequest
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """`base_seconds` after the first failure, doubled after each further one, up to `max_seconds`.

    `jitter` takes away up to that share of the delay, so that those who failed together do not come back together.
    """

    max: int = 3
    """How many times a message is tried again: with 3, its fourth failure is its last."""
    base_seconds: float = 1.0
    max_seconds: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _check(self.max, self.base_seconds, self.max_seconds)
        if not 0 <= self.jitter <= 1:
            raise InvalidRequest("The jitter of a retry policy is between 0 and 1.")

    def delay_ms(self, failures: int, chance: float) -> int:
        """How long to wait after that many failures. `chance` is a random number of 0 to 1."""
        seconds = min(self.base_seconds * 2.0 ** min(failures - 1, 40), self.max_seconds)
        return round(1000 * seconds * (1 - self.jitter * chance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The same delay after each failure."""

    max: int = 3
    seconds: float = 1.0

    def __post_init__(self) -> None:
        _check(self.max, self.seconds, self.seconds)

    def delay_ms(self, failures: int, chance: float) -> int:
        return round(1000 * self.seconds)


RetryPolicy = Exponential | Fixed


def _check(retries: int, first: float, last: float) -> None:
    if not 0 <= retries <= 1000:
        raise InvalidRequest("A retry policy has 0 to 1000 retries.")
    if not (0 <= first <= 86_400 and 0 <= last <= 86_400):
        raise InvalidRequest("The delays of a retry policy are 0 to 86400 seconds.")


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
        if not 1 <= self.window <= 10_000:
            raise InvalidRequest("A group's window is 1 to 10000 messages.")


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
class Reading:
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
