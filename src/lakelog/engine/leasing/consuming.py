"""The results of operations on groups: plain values, shared by leases, members, groups and dead letters.

The module decides nothing and uses no storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from lakelog.engine.leasing.cached_batch import CachedBatch
from lakelog.errors import LakelogError
from lakelog.model.group import Group
from lakelog.model.lease import Answered
from lakelog.model.progress import MemberInfo
from lakelog.model.structs import Value
from lakelog.model.topic import Topic
from lakelog.storage.store import HotBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedBatch:
    """A whole stored batch, and the offsets in it that belong to the lease, ascending."""

    cached: CachedBatch
    offsets: Sequence[int]

    @property
    def batch(self) -> HotBatch:
        return self.cached.hot

    @property
    def decoded(self) -> pa.RecordBatch:
        """The decoded batch. It is decoded once, even if several leases hold parts of it."""
        return self.cached.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """Messages of one partition that the owner holds until `expires_ms`, in the order in which to run them."""

    token: int
    partition: int
    expires_ms: int
    suspect: bool
    """True if the last lease of the message expired. Run the message alone."""
    offsets: Sequence[int]
    deliveries: Mapping[int, int]
    """The delivery attempt by offset; 1 for an offset that is missing."""
    failures: Mapping[int, int]
    """The number of failures by offset; 0 for an offset that is missing."""
    pieces: Sequence[LeasedBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeResult:
    """The result of a consume. It has no lease if no message arrived in time, or if the assignment changed."""

    topic: Topic
    group: Group
    leases: Sequence[Leased]
    generation: int | None = None
    """The group's generation, for a call that named a member."""
    has_waited: bool = False
    """True if no message was available when the call arrived."""
    answered: Sequence[Answered | LakelogError] | None = None
    """The outcomes of the call's answers, in order; None for a call without answers."""
    refusal: LakelogError | None = None
    """The reason why a call with answers got no lease. Messages may have been leased and released."""


class MembersInfo(Value, frozen=True, kw_only=True):
    """The members of a group.

    `state` is `empty`, `stable` or `rebalancing` (members of a cursor group still have to release partitions).
    """

    state: str
    generation: int
    members: tuple[MemberInfo, ...]
    idle: tuple[str, ...]
    """Members without a partition."""
    rebalances: int
    last_rebalance_at: datetime | None
    """When the assignment last changed."""
    rebalancing_ms: int
    """The total time that partitions waited for their next member."""
