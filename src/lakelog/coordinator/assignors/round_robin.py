"""Round-robin: partitions are dealt out one by one. Spreads neighbours; takes no heed of who had what."""

from __future__ import annotations

from lakelog.coordinator.assignors.shares import Assignment, Counts, Members, Shares


def assign(members: Members, counts: Counts, present: Assignment) -> Assignment:
    """Each partition goes to who has the least. With equal topics that is once around after another."""
    shares = Shares(members, counts)
    for topic in shares.readers:
        shares.deal(topic, range(counts[topic]))
    return shares.assignment()
