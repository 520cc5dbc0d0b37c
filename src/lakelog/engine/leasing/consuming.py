"""The arguments and results of operations on groups: plain values, shared by leases, members, groups and dead letters.

The module decides nothing and uses no storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from lakelog.engine.leasing.cached_batch import CachedBatch
from lakelog.errors import LakelogError
from lakelog.model.group import (
    DEFAULT_LEASE_MS,
    DEFAULT_SESSION_MS,
    Group,
    GroupWish,
)
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.progress import MemberInfo
from lakelog.model.structs import Value
from lakelog.model.topic import Topic
from lakelog.storage.store import HotBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeAsk:
    """One call for messages. A repeat with the same owner and request id gets the leases of the first try again."""

    topic: str
    group: str
    owner: str
    max_messages: int = 1
    lease_ms: int = DEFAULT_LEASE_MS
    wait_seconds: float = 0.0
    request_id: str | None = None
    member_id: str | None = None
    generation: int | None = None
    isolates: bool = False
    """The owner runs a suspect alone and says so with an extend (`alone`): only then its end counts as a failure."""
    repeat: bool = False
    """The call was sent before, with the same request id, and its answer was lost: the journals are read first, because
    another server may have granted its leases."""
    answers: Sequence[LeaseAnswer] = ()
    """Answers for leases that the owner holds, decided together with the take. A call with answers does not wait
    for messages: it returns as soon as the answers are decided."""
    wish: GroupWish = field(default_factory=GroupWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedBatch:
    """A stored batch, whole, and which of its offsets are meant (ascending)."""

    cached: CachedBatch
    offsets: Sequence[int]

    @property
    def batch(self) -> HotBatch:
        return self.cached.hot

    @property
    def decoded(self) -> pa.RecordBatch:
        """The batch decoded, which happens once, however many leases hold parts of it."""
        return self.cached.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """Messages of one partition that the owner holds until `expires_ms`, in the order in which to run them."""

    token: int
    partition: int
    expires_ms: int
    suspect: bool
    """Whether its last owner was lost while it held the message; run it alone."""
    offsets: Sequence[int]
    deliveries: Mapping[int, int]
    """By offset; one that is not here is delivered for the first time."""
    failures: Mapping[int, int]
    """By offset; one that is not here has never failed."""
    pieces: Sequence[LeasedBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeResult:
    """The result of a call for messages; no lease if there was nothing in time, or if the assignment changed."""

    topic: Topic
    group: Group
    leases: Sequence[Leased]
    generation: int | None = None
    """The group's generation, for a call that named a member."""
    has_waited: bool = False
    """There was nothing when the call came."""
    answered: Sequence[Answered | LakelogError] | None = None
    """The outcomes of the call's answers, in order; None for a call without answers."""
    refusal: LakelogError | None = None
    """The error because of which a call with answers got no lease. Messages may have been leased and released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAsk:
    """`member_id` None: one is made up. Joining again with the same id changes topics and settings, not identity.

    `replaces`: all other members leave in the same change, and their calls are refused from then on.
    """

    group: str
    topics: Sequence[str]
    member_id: str | None = None
    session_ms: int = DEFAULT_SESSION_MS
    client_host: str = ""
    replaces: bool = False
    wish: GroupWish = field(default_factory=GroupWish)


class MembersInfo(Value, frozen=True, kw_only=True):
    """State is `empty`, `stable` or `rebalancing` (a cursor group waits for partitions to be given up)."""

    state: str
    generation: int
    members: tuple[MemberInfo, ...]
    idle: tuple[str, ...]
    """Members without a partition."""
    rebalances: int
    last_rebalance_at: datetime | None
    """When the assignment last changed."""
    rebalancing_ms: int
    """How long, in all, partitions waited for their next member."""
