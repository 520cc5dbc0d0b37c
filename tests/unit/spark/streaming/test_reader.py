"""Where a new stream begins, and when its group is created: the source as Spark calls it, over an engine in memory."""

from __future__ import annotations

import itertools
import json
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import lakelog
from lakelog.errors import GroupNotFound, OffsetOutOfRange
from lakelog.spark.session import ConnectionSettings, client
from lakelog.spark.streaming.planning import StreamOffset
from lakelog.spark.streaming.reader import StreamReader
from tests.kit.redriving import redrive_one

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


def values(reader: StreamReader, end: dict[str, Any]) -> list[int]:
    """Return what the tasks of the first micro-batch read."""
    splits = reader.partitions(reader.initialOffset(), end)
    batches = [batch for split in splits for batch in reader.read(split)]
    return sorted(json.loads(value)["n"] for batch in batches for value in batch.column("value").to_pylist())


def test_a_group_gets_no_copies_for_other_groups_and_nothing_that_expired_before_the_plan(stream: Stream) -> None:
    orders = stream.log.topic("orders")
    redrive_one(stream.log, "orders", "billing")
    orders.publish({"n": 100}, expires=datetime(2020, 1, 1, tzinfo=UTC))
    orders.publish({"n": 101}, expires=timedelta(hours=1))
    raw = StreamReader({"url": stream.url, "topic": "orders", "start": "earliest"})
    everything = values(raw, plan(raw))
    assert len(everything) == 23 and {100, 101} < set(everything)
    reader = stream.reader(start="earliest")
    end = plan(reader)
    assert values(reader, end) == [*range(20), 101]
    reader.stop()
    # The repeated micro-batch has the same rows, even if messages have expired in between.
    for read_at, unexpired in ((datetime(2019, 1, 1, tzinfo=UTC), [100, 101]), (datetime(2100, 1, 1, tzinfo=UTC), [])):
        again = stream.reader()
        assert values(again, {**end, "read_at": read_at.isoformat()}) == [*range(20), *unexpired]
        again.stop()


# Removed messages -----------------------------------------------------------------------------------------------------

ALLOWED = {"failOnDataLoss": "false"}


def purged(stream: Stream, reader: StreamReader) -> dict[str, Any]:
    """Run the first micro-batch of a query, which reads half of the messages; then remove all and publish 4."""
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    values(reader, end)
    reader.latestOffset(end, ReadMaxRows(10))
    reader.stop()
    stream.log.topic("orders").purge()
    stream.publish(4)
    return end


@pytest.mark.parametrize("group", [None, "features"])
def test_a_stream_that_retention_has_passed_stops_and_names_the_way_out(stream: Stream, group: str | None) -> None:
    options = {"url": stream.url, "topic": "orders", "start": "earliest"} | ({"group": group} if group else {})
    end = purged(stream, StreamReader(options))
    again = StreamReader(options)
    with pytest.raises(OffsetOutOfRange, match=r"removed 10 messages .*partition 0: 5 to 9.*failOnDataLoss"):
        again.latestOffset(end, ReadAllAvailable())
    again.stop()


@pytest.mark.parametrize("group", [None, "features"])
def test_a_stream_continues_at_the_log_start_and_records_the_count(
    stream: Stream, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"url": stream.url, "topic": "orders", "start": "earliest"} | ({"group": group} if group else {})
    end = purged(stream, StreamReader(options))
    again = StreamReader({**options, **ALLOWED})
    with caplog.at_level(logging.WARNING):
        later = again.latestOffset(end, ReadAllAvailable())
    assert [each for each in caplog.messages if "removed 10 messages" in each] == caplog.messages != []
    assert (later["lost"], later["begin"]) == (10, {"0": 10, "1": 10})
    batches = [batch for split in again.partitions(end, later) for batch in again.read(split)]
    assert sum(batch.num_rows for batch in batches) == 4
    assert again.latestOffset(later, ReadAllAvailable()) == later
    again.stop()
    if group:
        assert stream.positions() == [12, 12]
        assert sum(each.cut for each in stream.log.group(group).describe().progress) == 10


def test_a_planned_micro_batch_that_retention_has_passed_is_read_as_far_as_it_exists(stream: Stream) -> None:
    reader = stream.reader(start="earliest")
    end = plan(reader)
    reader.partitions(reader.initialOffset(), end)
    reader.stop()
    stream.log.topic("orders").purge()
    stream.publish(4)
    failing = stream.reader()
    with pytest.raises(OffsetOutOfRange, match="failOnDataLoss"):
        failing.partitions(failing.initialOffset(), end)
    failing.stop()
    again = stream.reader(**ALLOWED)
    assert values(again, end) == []
    later = again.latestOffset(end, ReadAllAvailable())
    assert (later["lost"], later["begin"], later["end"]) == (20, {"0": 10, "1": 10}, {"0": 12, "1": 12})
    again.stop()


def test_a_running_query_continues_after_retention_has_cut_its_group(stream: Stream) -> None:
    reader = stream.reader(start="earliest", **ALLOWED)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    splits = reader.partitions(reader.initialOffset(), end)
    stream.log.topic("orders").purge()
    stream.publish(4)
    assert [batch for split in splits for batch in reader.read(split)] == []
    later = reader.latestOffset(end, ReadAllAvailable())
    assert (later["lost"], later["begin"]) == (10, {"0": 10, "1": 10})
    assert reader.latestOffset(later, ReadAllAvailable()) == later
    assert stream.positions() == [12, 12]
    reader.stop()
