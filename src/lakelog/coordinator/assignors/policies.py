"""The assignors by name. Range and round-robin ignore the current assignment; sticky has its own module."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.coordinator.assignors.balancer import Assignment, Balancer, MemberTopics, PartitionCounts, Policy
from lakelog.coordinator.assignors.sticky import sticky
from lakelog.model.group import Assignor


def by_range(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    """Assign topic by topic. The remainder of a topic goes to the members with the fewest partitions so far."""
    shares = Balancer(members, counts)
    for topic, places in shares.readers.items():
        each, over = divmod(counts[topic], len(places))
        larger = set(sorted(places, key=shares.load.__getitem__)[:over])
        first = 0
        for place in places:
            end = first + each + (place in larger)
            shares.give(place, topic, range(first, end))
            first = end
    return shares.assignment()


def round_robin(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    """Give each partition to the member with the fewest partitions. Members with equal topics take turns."""
    shares = Balancer(members, counts)
    for topic in shares.readers:
        shares.deal(topic, range(counts[topic]))
    return shares.assignment()


POLICIES: Mapping[Assignor, Policy] = {
    Assignor.RANGE: by_range,
    Assignor.ROUND_ROBIN: round_robin,
    Assignor.STICKY: sticky,
    # Elsewhere, `sticky` stops all members during a rebalance and `cooperative-sticky` only those that give up
    # partitions. No assignor here stops other members, so both names mean the same. Both exist for settings that
    # users bring along.
    Assignor.COOPERATIVE: sticky,
}
