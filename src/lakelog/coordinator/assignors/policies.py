"""Assignors by name."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.coordinator.assignors.balancer import Policy
from lakelog.coordinator.assignors.range import assign as by_range
from lakelog.coordinator.assignors.round_robin import assign as round_robin
from lakelog.coordinator.assignors.sticky import assign as sticky
from lakelog.model.group import Assignor

POLICIES: Mapping[Assignor, Policy] = {
    Assignor.RANGE: by_range,
    Assignor.ROUND_ROBIN: round_robin,
    Assignor.STICKY: sticky,
    # Elsewhere, `sticky` stops all members during a rebalance and `cooperative-sticky` only those that give up
    # partitions. No assignor here stops other members, so both names mean the same. Both exist for settings that
    # users bring along.
    Assignor.COOPERATIVE: sticky,
}
