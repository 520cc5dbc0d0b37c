"""Where a new stream begins, and when its group is created: the source as Spark calls it, over an engine in memory."""

from __future__ import annotations

import itertools
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import lakelog
from lakelog.errors import GroupNotFound, OffsetOutOfRange
from lakelog.spark.session import ConnectionSettings, client
from lakelog.spark.streaming.planning import StreamOffset
from lakelog.spark.streaming.reader import StreamReader

_names = itertools.count()


@dataclass(kw_only=True)
class Stream:
    """Queries of one topic with 20 messages in two partitions."""

    url: str
    log: Any

    def reader(self, **options: str) -> StreamReader:
        return StreamReader({"url": self.url, "topic": "orders", "group": "features", **options})

    def positions(self) -> list[int] | None:
        try:
            found = self.log.group("features").positions("orders")
        except GroupNotFound:
            return None
        return [position.offset for _, position in sorted(found.items())]

    def publish(self, count: int) -> None:
        self.log.topic("orders").publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(count)])


@pytest.fixture
def stream() -> Iterator[Stream]:
    url = f"memory://stream-reader-{next(_names)}"
    with client(ConnectionSettings(url=url)) as log:
        log.topic("orders").create(2)
        made = Stream(url=url, log=log)
        made.publish(20)
        # A reader in the main thread takes the signal by which Spark ends it.
        before = signal.getsignal(signal.SIGTERM)
        yield made
        signal.signal(signal.SIGTERM, before)


def plan(reader: StreamReader) -> dict[str, Any]:
    """The end of the first micro-batch of a query with a new checkpoint."""
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_the_group_is_created_when_the_first_micro_batch_is_planned_where_that_begins(stream: Stream) -> None:
    reader = stream.reader()
    end = plan(reader)
    assert stream.positions() is None
    stream.publish(4)
    reader.partitions(reader.initialOffset(), end)
    assert stream.positions() == [10, 10]
    again = reader.latestOffset(end, ReadAllAvailable())
    assert StreamOffset.of(again, "orders").end == {0: 12, 1: 12}
    reader.stop()
    assert stream.positions() == [10, 10]


def test_a_query_that_ends_before_its_first_micro_batch_leaves_no_group_and_its_checkpoint_goes_on(
    stream: Stream,
) -> None:
    failing = stream.reader()
    end = plan(failing)
    failing.partitions(failing.initialOffset(), end)
    failing.stop()
    assert stream.positions() is None
    stream.publish(4)
    same_checkpoint = stream.reader()
    same_checkpoint.partitions(same_checkpoint.initialOffset(), end)
    assert stream.positions() == [10, 10]
    same_checkpoint.stop()
    new_checkpoint = stream.reader(start="earliest")
    assert StreamOffset.of(plan(new_checkpoint), "orders").begin == {0: 0, 1: 0}


def test_a_group_that_was_deleted_is_created_again_where_the_checkpoint_is(stream: Stream) -> None:
    reader = stream.reader(start="earliest")
    end = plan(reader)
    reader.partitions(reader.initialOffset(), end)
    reader.stop()
    later = stream.reader()
    later.latestOffset(end, ReadAllAvailable())
    assert stream.positions() == [10, 10]
    later.stop()
    assert stream.positions() == [10, 10]


def test_a_new_group_may_begin_at_offsets(stream: Stream) -> None:
    reader = stream.reader(start="earliest", startOffsets='{"1": 7}')
    reader.partitions(reader.initialOffset(), plan(reader))
    assert stream.positions() == [0, 7]
    reader.stop()


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ('{"2": 0}', "names partition 2, and topic 'orders' has partitions 0 to 1"),
        ('{"0": 11}', "names offset 11 of partition 0; topic 'orders' has offsets 0 to 10 there"),
    ],
)
def test_offsets_that_the_topic_does_not_have_are_refused(stream: Stream, offsets: str, said: str) -> None:
    with pytest.raises(OffsetOutOfRange, match=said):
        plan(stream.reader(startOffsets=offsets))
    assert stream.positions() is None


def test_a_stream_that_skips_messages_without_being_told_to_says_so(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        plan(stream.reader(start="latest"))
        plan(stream.reader(start="earliest"))
        assert caplog.messages == []
        plan(stream.reader())
    assert caplog.messages == [
        "The stream starts at the end of topic 'orders': 20 existing messages are skipped. To read them, use "
        ".option('start', 'earliest') and a new checkpoint."
    ]


def test_a_start_that_is_ignored_because_the_group_exists_is_reported_once(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    first = stream.reader(start="latest")
    end = plan(first)
    first.partitions(first.initialOffset(), end)
    first.latestOffset(end, ReadAllAvailable())
    first.stop()
    second = stream.reader(start="earliest")
    with caplog.at_level(logging.WARNING):
        start = second.initialOffset()
        for _ in range(2):
            second.latestOffset(start, ReadAllAvailable())
            second.initialOffset()
    second.stop()
    assert caplog.messages == [
        "Group 'features' already exists and resumes at its committed offsets; option start=earliest is ignored. To "
        "start over, stop the query, run `lakelog groups seek features orders --to earliest`, and start the query "
        "with a new checkpoint."
    ]


def test_nothing_is_reported_where_the_group_is_where_the_options_say_or_the_checkpoint_is_not_new(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    first = stream.reader(start="latest")
    end = plan(first)
    first.partitions(first.initialOffset(), end)
    first.latestOffset(end, ReadAllAvailable())
    first.stop()
    with caplog.at_level(logging.WARNING):
        same = stream.reader(start="latest")
        plan(same)
        same.stop()
        known = stream.reader(start="earliest")
        known.partitions(known.initialOffset(), end)
        known.latestOffset(end, ReadAllAvailable())
        known.stop()
    assert caplog.messages == []
