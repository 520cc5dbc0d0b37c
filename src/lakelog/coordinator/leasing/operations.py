"""The operations on a delivery state, their replies, and the context of a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lakelog.coordinator.leasing.events import AnyEvent
from lakelog.errors import LakelogError
from lakelog.model.group import Order, RetryPolicy
from lakelog.model.incident import Incident

LOOK_AHEAD = 10_000
"""Maximum number of messages of a partition that are skipped because their keys are blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingConfig:
    """The settings of a group that decisions need."""

    order: Order
    retries: RetryPolicy
    dead_letter: bool = True
    window: int = 2000
    look_ahead: int = LOOK_AHEAD
    paused: bool = False


class ExclusionReason(IntEnum):
    """Reason why a message is not delivered when it is first considered."""

    FILTERED = 1
    EXPIRED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Messages that were read from the log, from `start` on. The frontier is within them or at their end."""

    start: int
    keys: Sequence[int]
    """A 32-bit hash of each message's key, never 0; 0 for a message without one."""
    excluded: Mapping[int, ExclusionReason] = field(default_factory=dict)
    expires: Mapping[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Everything that a decision depends on besides the state."""

    now_ms: int
    chance: float
    config: LeasingConfig
    candidates: Candidates
    log_start: int = 0
    high_watermark: int = 0


# Operations -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireMessages:
    """Requests messages. `held_elsewhere` is the number of messages that the owner holds in other partitions."""

    owner: str
    max_messages: int
    lease_ms: int
    request: str = ""
    held_elsewhere: int = 0
    isolates: bool = False
    generation: int | None = None

    @property
    def is_search(self) -> bool:
        """Return whether this requests no new messages, only the lease that the same request got before."""
        return self.max_messages == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishMessages:
    """Acks or discards messages of a lease. `through` means all open messages below the end of `ranges`."""

    owner: str
    token: int | None
    ranges: Sequence[tuple[int, int]]
    discard: bool = False
    through: bool = False
    generation: int | None = None
    once: Mapping[int, bytes] = field(default_factory=dict)
    """The hashes of the values of which the group accepts one run each, by offset."""
    taken: frozenset[bytes] = frozenset()
    """The hashes of values of which the group has accepted a run. Their messages are finished as filtered."""
    only_taken: bool = False
    """True to finish only the messages with a taken value, and leave the others open."""

    @property
    def finishes_none(self) -> bool:
        """Return whether this finishes only messages with a taken value, and has none."""
        return self.only_taken and self.taken.isdisjoint(self.once.values())


class ReturnKind(IntEnum):
    """How messages are returned. A nack counts as a failure, a release does not, and a fatal nack ends the message."""

    NACK = 1
    RELEASE = 2
    FATAL_NACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnMessages:
    """Nacks or releases messages.

    `orphaned` means that the call that leased them failed before its owner got the reply.
    """

    owner: str
    token: int | None
    ranges: Sequence[tuple[int, int]]
    kind: ReturnKind
    delay_ms: int | None = None
    reason: str = ""
    traceback: str | None = None
    """Stored only in a dead letter, not in events."""
    generation: int | None = None
    orphaned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    owner: str
    token: int | None
    lease_ms: int
    offset: int | None = None
    """Offset of a message in the lease, instead of a token."""
    alone: bool = False
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPosition:
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipTo:
    """Cuts the messages below the offset without delivering them, for an operator to pass unreadable messages.

    Waiting and skipped messages are cut, and the frontier moves up to the offset. Leased messages stay with their
    owners and are retried as usual if they come back. A repeat cuts nothing more unless such a message came back. The
    epoch must be the current one, because a seek may have moved the group since the caller read its position.
    """

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPosition:
    """Commits the position of a cursor group. If an epoch is given, it must be the current one."""

    offset: int
    generation: int | None = None
    epoch: int | None = None


Operation = AcquireMessages | FinishMessages | ReturnMessages | ExtendLease | SeekPosition | SkipTo | CommitPosition


# Replies --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A granted lease. `deliveries` and `failures` are by offset, for values other than 1 and 0.

    `offsets` is a range if they are consecutive, so that later stages need not check each one.
    """

    token: int
    until_ms: int
    suspect: bool
    offsets: Sequence[int]
    deliveries: Mapping[int, int]
    failures: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingAvailable:
    """No message can be delivered now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The operation was accepted. `dead` has messages that became dead letters or were discarded after failures."""

    until_ms: int | None = None
    dead: Sequence[int] = ()
    retry_in_ms: int | None = None
    """For a nack: time until the first of its messages is due again; None if none waits."""
    max_attempts: int | None = None
    """For a nack: number of failures after which the retry policy ends a message."""
    cut: int = 0
    """For a skip: number of messages that were cut."""
    filtered: Sequence[int] = ()
    """For messages with values of which one run is accepted: those that were finished as filtered."""


Reply = Granted | NothingAvailable | Accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A message that becomes a dead letter in the same commit."""

    offset: int
    epoch: int
    deliveries: int
    failures: int
    reason: str
    owner: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of a step. Its events are already applied to the state that was passed to `step`.

    The result is valid only if it is written while the database's clock is within the bounds, both included.
    """

    replies: Sequence[Reply | LakelogError]
    events: Sequence[AnyEvent]
    dead_messages: Sequence[DeadMessage]
    not_before_ms: int
    not_after_ms: int
    expired: Sequence[str] = ()
    """The owners of leases that expired."""
    incidents: Sequence[Incident] = ()
    """The deliveries that did not end well, and the ends of messages that had one."""
    accepted_values: Sequence[bytes] = ()
    """The hashes of values of which this step accepts a run. The result is valid only if no other run was accepted."""
