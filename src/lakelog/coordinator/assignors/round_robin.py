"""Round-robin: partitions are assigned one by one. It spreads neighbours, and ignores the current assignment."""

from __future__ import annotations

from lakelog.coordinator.assignors.balancer import Assignment, Balancer, MemberTopics, PartitionCounts


def assign(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    """Give each partition to the member with the fewest partitions. Members with equal topics take turns."""
    shares = Balancer(members, counts)
    for topic in shares.readers:
        shares.deal(topic, range(counts[topic]))
    return shares.assignment()
