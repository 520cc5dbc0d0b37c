"""Sticky: everyone keeps what they have, except what has to move for the shares to be even."""

from __future__ import annotations

import heapq

from lakelog.coordinator.assignors.balancer import Assignment, Balancer, MemberTopics, PartitionCounts


def assign(members: MemberTopics, counts: PartitionCounts, present: Assignment) -> Assignment:
    """What nobody has goes to who has the least; then whoever has two more than another gives one to that one."""
    shares = Balancer(members, counts)
    taken = _keep(shares, present)
    for topic in shares.readers:
        shares.deal(topic, (each for each in range(counts[topic]) if each not in taken[topic]))
    while _even_out(shares):
        pass
    return shares.assignment()


def _keep(shares: Balancer, present: Assignment) -> dict[str, set[int]]:
    """Gives members what they have and may still have; which partitions that are."""
    taken: dict[str, set[int]] = {topic: set() for topic in shares.readers}
    for place, member_id in enumerate(shares.members):
        for topic, partitions in present.get(member_id, {}).items():
            if topic in taken and topic in shares.topics[place]:
                kept = {each for each in partitions if 0 <= each < shares.counts[topic]} - taken[topic]
                shares.give(place, topic, sorted(kept))
                taken[topic] |= kept
    return taken


def _even_out(shares: Balancer) -> bool:
    """One pass from those with the most down; whether anything moved. Ends: every move makes the shares more even.

    A second pass is needed only where members have different topics: a move may make room for one that was in vain.
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
    """Who has the least of those who could read something of the giver's, if that is at least two less."""
    distinct = {id(shares.readers[topic]): shares.readers[topic] for topic in shares.held[giver]}
    least = [shares.least(places) for places in distinct.values()]
    taker = min(least, key=lambda place: (shares.load[place], place), default=giver)
    return taker if shares.load[giver] - shares.load[taker] > 1 else None


def _topic(shares: Balancer, giver: int, taker: int) -> str:
    """The topic of which the giver has the most more than the taker: so that each topic is spread too."""
    held, others = shares.held[giver], shares.held[taker]
    common = [topic for topic in held if topic in shares.topics[taker]]
    return max(common, key=lambda topic: (len(held[topic]) - len(others.get(topic, ())), topic))
