"""The types of all assignors, and the table in which they balance partitions.

A policy takes the members with their topics, oldest first, the number of partitions of each topic, and the current
assignment. It returns a new assignment in which members with the same topics differ by at most one partition. The same
input always gives the same assignment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

MemberTopics = Mapping[str, Sequence[str]]
"""Topics by member. The order of members matters: partitions that cannot be shared evenly go to the first members."""
PartitionCounts = Mapping[str, int]
"""Number of partitions by topic. A topic that is missing has none."""
Assignment = Mapping[str, Mapping[str, Sequence[int]]]
"""Ascending partitions by topic, by member. A member without partitions has an empty mapping."""
Policy = Callable[[MemberTopics, PartitionCounts, Assignment], Assignment]


def idle(assignment: Assignment) -> list[str]:
    """Return the members without a partition, because there are more members than partitions."""
    return [member_id for member_id, share in assignment.items() if not share]


class Balancer:
    """Members by their position in the order, their partitions so far, and the readers of each topic."""

    def __init__(self, members: MemberTopics, counts: PartitionCounts) -> None:
        self.members = list(members)
        self.counts = counts
        self.load = [0] * len(self.members)
        self.held: list[dict[str, list[int]]] = [{} for _ in self.members]
        self.topics = [frozenset(topics) for topics in members.values()]
        readers: dict[str, list[int]] = {}
        for place, topics in enumerate(self.topics):
            for topic in topics:
                readers.setdefault(topic, []).append(place)
        # Topics with few readers come first, so that the other topics can even out the rest.
        order = sorted((len(places), topic) for topic, places in readers.items() if counts.get(topic, 0) > 0)
        # Most topics have the same readers and share one tuple, so that there is one set of readers to check.
        same: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.readers = {topic: same.setdefault(tuple(readers[topic]), tuple(readers[topic])) for _, topic in order}

    def give(self, place: int, topic: str, partitions: Sequence[int]) -> None:
        if partitions:
            self.held[place].setdefault(topic, []).extend(partitions)
            self.load[place] += len(partitions)

    def take(self, place: int, topic: str) -> int:
        """Remove and return the partition of the topic that the member got last, or its highest earlier partition."""
        partitions = self.held[place][topic]
        last = partitions.pop()
        if not partitions:
            del self.held[place][topic]
        self.load[place] -= 1
        return last

    def least(self, places: Iterable[int]) -> int:
        """Return the member with the fewest partitions; the oldest of several."""
        return min(places, key=self.load.__getitem__)

    def deal(self, topic: str, partitions: Iterable[int]) -> None:
        """Give each partition to the member with the fewest partitions."""
        least = [(self.load[place], place) for place in self.readers[topic]]
        heapq.heapify(least)
        for partition in partitions:
            load, place = least[0]
            self.give(place, topic, (partition,))
            heapq.heapreplace(least, (load + 1, place))

    def assignment(self) -> Assignment:
        return {
            member_id: {topic: sorted(held[topic]) for topic in sorted(held)}
            for member_id, held in zip(self.members, self.held, strict=True)
        }
