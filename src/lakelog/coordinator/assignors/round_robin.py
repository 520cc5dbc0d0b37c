"""Round-robin: partitions are dealt out one by one. Spreads neighbours; takes no heed of who had what."""

from __future__ import annotations

from lakelog.coordinator.assignors.balancer import Assignment, Balancer, MemberTopics, PartitionCounts


def assign(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    """Each partition goes to who has the least. With equal topics that is once around after another."""
    shares = Balancer(members, counts)
    for topic in shares.readers:
        shares.deal(topic, range(counts[topic]))
    return shares.assignment()
