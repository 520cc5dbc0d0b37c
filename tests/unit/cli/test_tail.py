"""`lakelog tail` over every layout of partitions, batches and pages that a topic can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import lakelog
from lakelog.cli import fetch, tail
from lakelog.client.values import Outgoing


@pytest.fixture
def log() -> Iterator[lakelog.Lakelog]:
    with lakelog.connect("memory://") as opened:
        yield opened


def topic_of(log: lakelog.Lakelog, layout: list[int], partitions: int = 1) -> tuple[Any, list[int]]:
    """A topic with batches of these sizes, in turn to its partitions, and the numbers in it in the order of publishing.

    A batch of one is a single publish.
    """
    topic = log.topic("layout")
    topic.create(partitions=partitions)
    number = 0
    for place, size in enumerate(layout):
        partition = place % partitions
        if size == 1:
            topic.publish(number, partition=partition)
        else:
            topic.publish_many([Outgoing(n, partition=partition) for n in range(number, number + size)])
        number += size
    return topic, list(range(number))


def shown(topic: Any, last: int, partition: int | None = None) -> list[int]:
    return [message.value for message in tail.find_messages(topic, partition, None, last, False)]


@pytest.mark.parametrize("last", [1, 2, 3, 5, 50, 103, 5000])
@pytest.mark.parametrize(
    "layout",
    [[100, 1, 1, 1], [1, 1, 1, 100], [50, 1, 50, 2], [1] * 12, [103], [3, 2500, 1, 3]],
    ids=lambda layout: "+".join(map(str, layout)),
)
def test_the_newest_of_one_partition_are_shown_whatever_batches_they_are_in(
    log: lakelog.Lakelog, layout: list[int], last: int
) -> None:
    topic, numbers = topic_of(log, layout)
    assert shown(topic, last) == shown(topic, last, partition=0) == numbers[-last:]


@pytest.mark.parametrize("partitions", [2, 3, 8])
@pytest.mark.parametrize("last", [1, 4, 20, 1000])
def test_the_newest_of_several_partitions_are_shown_in_the_order_of_appending(
    log: lakelog.Lakelog, partitions: int, last: int
) -> None:
    topic, numbers = topic_of(log, [10, 1, 7, 1, 1, 1, 2, 1, 12, 1], partitions)
    assert shown(topic, last) == numbers[-last:]


def test_an_empty_partition_and_an_empty_topic_show_nothing_and_end(log: lakelog.Lakelog) -> None:
    topic, numbers = topic_of(log, [3], partitions=4)
    assert shown(topic, 10) == numbers and shown(topic, 10, partition=3) == []
    topic.purge()
    assert shown(topic, 10) == []


def test_what_retention_has_cut_is_left_out(log: lakelog.Lakelog) -> None:
    topic, _ = topic_of(log, [100, 1])
    topic.purge()
    topic.publish_many([101, 102])
    topic.publish(103)
    assert shown(topic, 50) == [101, 102, 103]


class CutWhileReading:
    """A topic whose messages so far are purged after the first fetch, and one more is published."""

    def __init__(self, topic: Any) -> None:
        self._topic = topic
        self._fetches = 0

    def fetch(self, *arguments: Any, **options: Any) -> Any:
        found = self._topic.fetch(*arguments, **options)
        self._fetches += 1
        if self._fetches == 1:
            self._topic.purge()
            self._topic.publish(-1)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)


@pytest.mark.parametrize("partition", [None, 0])
def test_retention_that_cuts_between_two_pages_ends_nothing(log: lakelog.Lakelog, partition: int | None) -> None:
    topic, numbers = topic_of(log, [fetch.PAGE, 1, 1])
    assert shown(CutWhileReading(topic), 2000, partition) == [*numbers[: fetch.PAGE], -1]


def test_reading_goes_on_where_the_newest_ended(log: lakelog.Lakelog) -> None:
    topic, numbers = topic_of(log, [100, 1, 1, 1], partitions=1)
    found = tail.find_messages(topic, 0, None, 5, True)
    assert [next(found).value for _ in range(5)] == numbers[-5:]
    topic.publish_many([103, 104])
    assert [next(found).value for _ in range(2)] == [103, 104]


class EmptyPages:
    """A topic whose every second fetch finds nothing, as one that is answered while batches are being moved."""

    def __init__(self, topic: Any) -> None:
        self._topic = topic
        self._fetches = 0

    def fetch(self, partition: int, **options: Any) -> Any:
        found = self._topic.fetch(partition, **options)
        self._fetches += 1
        if self._fetches % 2:
            return found
        return replace(found, messages=[], next_offset=options["offset"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)


def test_an_empty_page_before_the_end_is_not_taken_for_the_end(log: lakelog.Lakelog) -> None:
    topic, numbers = topic_of(log, [2 * fetch.PAGE, 1, 1])
    assert shown(EmptyPages(topic), 5000) == numbers
