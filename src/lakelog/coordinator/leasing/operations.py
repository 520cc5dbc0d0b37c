"""What can be asked of a group's progress, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lakelog.coordinator.leasing.events import AnyEvent
from lakelog.errors import LakelogError
from lakelog.model.group import Order, RetryPolicy

LOOK_AHEAD = 10_000
"""At most so many messages of a partition are skipped because their keys are blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingConfig:
    """The group's settings, as far as decisions need them."""

    order: Order
    retries: RetryPolicy
    dead_letter: bool = True
    window: int = 2000
    look_ahead: int = LOOK_AHEAD
    paused: bool = False


class ExclusionReason(IntEnum):
    """Why a message is passed over when it is first considered."""

    FILTERED = 1
    EXPIRED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Messages of the log from `start` on, as far as they were read: the frontier lies in or at the end of them."""

    start: int
    keys: Sequence[int]
    """A 32-bit hash of each message's key, never 0; 0 for a message without one."""
    passed: Mapping[int, ExclusionReason] = field(default_factory=dict)
    expires: Mapping[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """All that a decision depends on besides the state."""

    now_ms: int
    chance: float
    config: LeasingConfig
    candidates: Candidates
    log_start: int = 0
    high_watermark: int = 0


# Operations -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireMessages:
    """Asks for messages. `hands`: how many the owner holds in other partitions."""

    owner: str
    max_messages: int
    lease_ms: int
    request: str = ""
    hands: int = 0
    isolates: bool = False
    generation: int | None = None

    @property
    def is_search(self) -> bool:
        """Whether it asks for no messages, but for the lease that the same request got before."""
        return self.max_messages == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishMessages:
    """Ends messages of a lease: acked or discarded. `through`: all open ones below `ranges`' end."""

    owner: str
    token: int | None
    ranges: Sequence[tuple[int, int]]
    discard: bool = False
    through: bool = False
    generation: int | None = None


class ReturnKind(IntEnum):
    """How a message is given back."""

    NACK = 1
    RELEASE = 2
    FATAL_NACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnMessages:
    """Nack and release. `orphaned`: the call that was to tell the owner failed, and says so for itself alone."""

    owner: str
    token: int | None
    ranges: Sequence[tuple[int, int]]
    kind: ReturnKind
    delay_ms: int | None = None
    reason: str = ""
    traceback: str | None = None
    """Kept only by a dead letter: no event has it."""
    generation: int | None = None
    orphaned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    owner: str
    token: int | None
    lease_ms: int
    offset: int | None = None
    """Instead of a token: a message that the lease holds."""
    alone: bool = False
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPosition:
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipTo:
    """Gives up what lies below the offset, without delivering it: an operator's way past messages that cannot be read.

    Waiting and skipped messages are cut, and the frontier moves to the offset if it is below it. Leased messages stay
    with their owners: they were delivered, so one that comes back is retried as usual. A repeat cuts nothing more,
    unless such a message came back in between. The epoch has to be the present one: a seek may have moved the group
    since the caller looked.
    """

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPosition:
    """A cursor group's position. An epoch that is named has to be the present one."""

    offset: int
    generation: int | None = None
    epoch: int | None = None


Operation = AcquireMessages | FinishMessages | ReturnMessages | ExtendLease | SeekPosition | SkipTo | CommitPosition


# Replies --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A lease. `deliveries` and `failures` are by offset, where they are not 1 and 0.

    `offsets` are a range where they are consecutive, so that later stages need not look at each of them.
    """

    token: int
    until_ms: int
    suspect: bool
    offsets: Sequence[int]
    deliveries: Mapping[int, int]
    failures: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingAvailable:
    """There is nothing to hand out now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """As asked. `dead` became dead letters, or were discarded for having failed too often."""

    until_ms: int | None = None
    dead: Sequence[int] = ()
    retry_in_ms: int | None = None
    """Of a nack: the time until the first of its messages is due again, None if none of them waits."""
    max_attempts: int | None = None
    """Of a nack: the number of failures after which the retry policy gives a message up."""
    cut: int = 0
    """Of a skip: the number of messages that it cut."""


Reply = Granted | NothingAvailable | Accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A message that becomes a dead letter, in the same commit."""

    offset: int
    epoch: int
    deliveries: int
    failures: int
    reason: str
    owner: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What was decided. The events have been applied to the state that `step` was given.

    It holds only if it is written while the database's clock is within the bounds, both included.
    """

    replies: Sequence[Reply | LakelogError]
    events: Sequence[AnyEvent]
    dead_messages: Sequence[DeadMessage]
    not_before_ms: int
    not_after_ms: int
    expired: Sequence[str] = ()
    """The owners of leases that expired."""
