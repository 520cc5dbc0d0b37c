"""What all assignors take and give, and the table in which they work it out.

A policy takes the members with their topics, the eldest first, how many partitions each topic has, and who has what
now. It gives every member its share: at most one partition more or less than any other with the same topics. The same
input always gives the same shares.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

MemberTopics = Mapping[str, Sequence[str]]
"""The topics of each member. The order of members counts: what cannot be shared evenly goes to the first."""
PartitionCounts = Mapping[str, int]
"""Partitions by topic; a topic that is not here has none."""
Assignment = Mapping[str, Mapping[str, Sequence[int]]]
"""Partitions by topic, ascending, by member. A member without any is here too, with no topic."""
Policy = Callable[[MemberTopics, PartitionCounts, Assignment], Assignment]


def idle(assignment: Assignment) -> list[str]:
    """Those who got no partition: there are more members than partitions."""
    return [member_id for member_id, share in assignment.items() if not share]


class Balancer:
    """Members by their place in the order, what each has so far, and who reads which topic."""

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
        # Topics with few readers come first: the others then even out what these could not.
        order = sorted((len(places), topic) for topic, places in readers.items() if counts.get(topic, 0) > 0)
        # Most topics have the same readers. Those share one object: there is then one set of them to look at.
        same: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.readers = {topic: same.setdefault(tuple(readers[topic]), tuple(readers[topic])) for _, topic in order}

    def give(self, place: int, topic: str, partitions: Sequence[int]) -> None:
        if partitions:
            self.held[place].setdefault(topic, []).extend(partitions)
            self.load[place] += len(partitions)

    def take(self, place: int, topic: str) -> int:
        """The partition of the topic that the member got last, taken away; of those that it had before, the highest."""
        partitions = self.held[place][topic]
        last = partitions.pop()
        if not partitions:
            del self.held[place][topic]
        self.load[place] -= 1
        return last

    def least(self, places: Iterable[int]) -> int:
        """Who has the least; of several the eldest."""
        return min(places, key=self.load.__getitem__)

    def deal(self, topic: str, partitions: Iterable[int]) -> None:
        """One after another, each to who has the least."""
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
