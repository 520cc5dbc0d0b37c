"""Range: neighbouring partitions of a topic go to the same member.

It is predictable, and ignores the current assignment.
"""

from __future__ import annotations

from lakelog.coordinator.assignors.balancer import Assignment, Balancer, MemberTopics, PartitionCounts


def assign(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
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
