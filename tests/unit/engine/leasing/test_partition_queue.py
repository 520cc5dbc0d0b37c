"""The order of ready partitions: due ones first, the others in turns, and those of each member apart."""

from __future__ import annotations

from lakelog.engine.leasing.partition_queue import PartitionQueue


def queue_of(*partitions: int, closed: frozenset[int] = frozenset()) -> PartitionQueue:
    queue = PartitionQueue(lambda partition: partition not in closed)
    for partition in partitions:
        queue.add(partition)
    return queue


def test_partitions_take_turns() -> None:
    queue = queue_of(3, 1, 2)
    queue.add(3)
    assert list(queue) == [3, 1, 2]
    queue.tried(3)
    assert list(queue) == [1, 2, 3] and len(queue) == 3
    queue.remove(2)
    queue.tried(2)
    assert list(queue) == [1, 3] and 2 not in queue


def test_due_partitions_come_first_until_they_are_tried() -> None:
    queue = queue_of(1, 2, 3)
    queue.add(3, is_due=True)
    queue.add(2, is_due=True)
    assert list(queue) == [3, 2, 1]
    queue.tried(3)
    assert list(queue) == [2, 1, 3]


def test_closed_partitions_are_left_out() -> None:
    queue = queue_of(1, 2, 3, closed=frozenset({2}))
    queue.add(2, is_due=True)
    assert list(queue) == [1, 3]


def test_each_consumer_can_begin_at_another_place() -> None:
    queue = queue_of(1, 2, 3, closed=frozenset({2}))
    assert list(queue.turned(1)) == [3, 1]
    assert list(queue.turned(2)) == [1, 3], "a place beyond the end"


def test_a_member_gets_its_own_partitions_in_order() -> None:
    queue = queue_of(4, 3, 2, 1)
    queue.assign("ann", frozenset({1, 3, 9}))
    queue.add(9)
    queue.add(1, is_due=True)
    assert list(queue.of("ann")) == [1, 3, 9]
    queue.tried(1)
    assert list(queue.of("ann")) == [3, 9, 1]
    queue.remove(3)
    assert list(queue.of("ann")) == [9, 1] and list(queue.of("bob")) == []


def test_a_partition_that_moves_leaves_its_first_member() -> None:
    queue = queue_of(1, 2, 3)
    queue.assign("ann", frozenset({1, 2}))
    queue.assign("bob", frozenset({2, 3}))
    assert (list(queue.of("ann")), list(queue.of("bob"))) == ([1], [2, 3])
    queue.assign("bob", frozenset({1, 2, 3}))
    assert list(queue.of("ann")) == [] and list(queue.of("bob")) == [2, 3, 1]
    assert queue.has_members and queue.is_assigned(1) and not queue.is_assigned(4)
    assert queue.assign("bob", frozenset()) and not queue.assign("bob", frozenset())
    assert not queue.has_members and not queue.is_assigned(1)
    assert sorted(queue) == [1, 2, 3] and list(queue.of("bob")) == []
