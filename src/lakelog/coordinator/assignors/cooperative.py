"""Cooperative-sticky, the default: the shares of `sticky`.

Elsewhere the two names differ in the hand-over: `sticky` stops everybody, `cooperative-sticky` only those who give
something up. Here no assignor stops anybody else, so that the names differ in nothing; both are there for those who
bring their settings along.
"""

from __future__ import annotations

from lakelog.coordinator.assignors.balancer import Assignment, MemberTopics, PartitionCounts
from lakelog.coordinator.assignors.sticky import assign as sticky


def assign(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    return sticky(members, counts, present)
