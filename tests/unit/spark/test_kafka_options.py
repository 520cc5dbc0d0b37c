"""Kafka's option names: what they mean here, and which of their values are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakelog.errors import InvalidRequest
from lakelog.spark.kafka_options import from_kafka
from lakelog.spark.options import is_stream, known_options
from lakelog.spark.reading.ranges import parse_read_options
from lakelog.spark.streaming.options import parse_stream_options

AT = datetime(2026, 1, 31, tzinfo=UTC)
MILLISECONDS = str(int(AT.timestamp() * 1000))


def test_a_batch_read_by_kafka_s_names() -> None:
    found = parse_read_options(
        {
            "subscribe": "orders",
            "startingOffsets": '{"orders": {"0": 12, "1": -2}}',
            "endingOffsets": '{"orders": {"0": 40, "1": -1}}',
        }
    )
    assert (found.topic, found.plan.starts, found.plan.ends) == ("orders", {0: 12}, {0: 40})
    found = parse_read_options({"subscribe": "orders", "startingOffsets": "earliest", "endingOffsets": "latest"})
    assert (found.plan.starts, found.plan.ends) == (None, None)
    found = parse_read_options({"subscribe": "o", "startingTimestamp": MILLISECONDS, "endingTimestamp": MILLISECONDS})
    assert (found.plan.since, found.plan.until) == (AT, AT)


def test_a_stream_by_kafka_s_names() -> None:
    found = parse_stream_options(
        {
            "subscribe": "orders",
            "startingOffsets": '{"orders": {"0": 12, "1": -2}}',
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
        }
    )
    assert (found.topic, found.start, found.start_offsets) == ("orders", "earliest", {0: 12})
    assert (found.max_messages, found.min_messages, found.max_delay_seconds) == (100, 10, 30)
    found = parse_stream_options({"subscribe": "orders", "startingOffsets": "earliest"})
    assert (found.start, found.has_start, found.start_time) == ("earliest", True, None)
    assert parse_stream_options({"subscribe": "orders", "startingTimestamp": MILLISECONDS}).start_time == AT


@pytest.mark.parametrize(
    ("options", "stream", "said"),
    [
        ({"subscribe": "a,b"}, True, "names several topics"),
        ({"subscribe": "a", "topic": "a"}, True, "`subscribe` is Kafka's name of `topic`, which is given too"),
        ({"topic": "a", "startingOffsets": "earliest", "start": "latest"}, True, "Kafka's name of `start`"),
        ({"topic": "a", "startingOffsets": '{"a": {"0": -1, "1": -2}}'}, True, "mixes -1"),
        ({"topic": "a", "startingOffsets": '{"b": {"0": 1}}'}, True, 'offsets of the topic, as {"a": {"0": 12'),
        ({"topic": "a", "startingOffsets": "latest"}, False, r"of a batch read is `earliest` \(-2\) or offsets"),
        ({"topic": "a", "endingOffsets": '{"a": {"0": -2}}'}, False, r"is `latest` \(-1\) or offsets"),
        ({"topic": "a", "startingTimestamp": "yesterday"}, False, "milliseconds since 1970"),
    ],
)
def test_a_value_that_has_no_meaning_here_is_refused(options: dict[str, str], stream: bool, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        from_kafka(options, is_stream=stream)


def test_a_load_tells_streams_from_reads_by_kafka_s_names_too() -> None:
    assert not is_stream({"subscribe": "orders", "endingOffsets": "latest"})
    assert not is_stream({"subscribe": "orders", "startingOffsets": "earliest"})
    assert is_stream({"subscribe": "orders", "startingOffsets": "latest"})
    assert is_stream({"subscribe": "orders", "maxOffsetsPerTrigger": "5"})
    with pytest.raises(InvalidRequest, match=r"option of Kafka's source\. Name the server with `url`"):
        known_options({"kafka.bootstrap.servers": "host:9092"}, ("topic",), of="spark.read")
