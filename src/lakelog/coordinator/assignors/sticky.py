"""Sticky: members keep their partitions, except those that must move for an even assignment."""

from __future__ import annotations

import heapq

from lakelog.coordinator.assignors.balancer import Assignment, Balancer, MemberTopics, PartitionCounts


def sticky(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    """Give free partitions to the members with the fewest, then move partitions while members differ by two or more."""
    shares = Balancer(members, counts)
    taken = _keep(shares, present)
    for topic in shares.readers:
        shares.deal(topic, (each for each in range(counts[topic]) if each not in taken[topic]))
    while _even_out(shares):
        pass
    return shares.assignment()


def _keep(shares: Balancer, present: Assignment) -> dict[str, set[int]]:
    """Give members the partitions that they may keep, and return those partitions by topic."""
    taken: dict[str, set[int]] = {topic: set() for topic in shares.readers}
    for place, member_id in enumerate(shares.members):
        for topic, partitions in present.get(member_id, {}).items():
            if topic in taken and topic in shares.topics[place]:
                kept = {each for each in partitions if 0 <= each < shares.counts[topic]} - taken[topic]
                shares.give(place, topic, sorted(kept))
                taken[topic] |= kept
    return taken


def _even_out(shares: Balancer) -> bool:
    """Move partitions in one pass, starting with the member that has the most, and return whether any moved.

    Every move makes the assignment more even, so the passes end. A second pass is needed only if members have
    different topics: a move may make another move possible.
    """
    moved = False
    most = [(-load, place) for place, load in enumerate(shares.load)]
    heapq.heapify(most)
    while most:
        load, giver = heapq.heappop(most)
        if -load != shares.load[giver]:
            continue
        if -load - min(shares.load) <= 1:
            break
        taker = _taker(shares, giver)
        if taker is None:
            continue
        topic = _topic(shares, giver, taker)
        shares.give(taker, topic, (shares.take(giver, topic),))
        for place in (giver, taker):
            heapq.heappush(most, (-shares.load[place], place))
        moved = True
    return moved


def _taker(shares: Balancer, giver: int) -> int | None:
    """Return the member with the fewest partitions that reads a topic of the giver, if it has at least two fewer."""
    distinct = {id(shares.readers[topic]): shares.readers[topic] for topic in shares.held[giver]}
    least = [shares.least(places) for places in distinct.values()]
    taker = min(least, key=lambda place: (shares.load[place], place), default=giver)
    return taker if shares.load[giver] - shares.load[taker] > 1 else None


def _topic(shares: Balancer, giver: int, taker: int) -> str:
    """Return the topic in which the giver exceeds the taker most, so that each topic is spread evenly."""
    held, others = shares.held[giver], shares.held[taker]
    common = [topic for topic in held if topic in shares.topics[taker]]
    return max(common, key=lambda topic: (len(held[topic]) - len(others.get(topic, ())), topic))
