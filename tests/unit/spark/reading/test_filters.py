"""Filters that Spark pushes down: what they exclude, and what they leave to Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from lakelog.client.reading.read_ranges import ReadRange
from lakelog.model.lake import PlanOptions
from lakelog.spark.reading.batch_reader import BatchReader, batch_reader
from lakelog.spark.reading.filters import RowFilter, with_keys

AT = datetime(2026, 1, 31, tzinfo=UTC)
TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], RowFilter()),
        ([EqualTo(("partition",), 3)], RowFilter(partitions=frozenset({3}))),
        ([In(("partition",), (1, 2)), In(("partition",), (2, 5))], RowFilter(partitions=frozenset({2}))),
        ([EqualTo(("key",), b"a"), IsNotNull(("key",))], RowFilter(keys=frozenset({b"a"}))),
        ([GreaterThan(("offset",), 9), LessThan(("offset",), 20)], RowFilter(first=10, end=20)),
        ([GreaterThanOrEqual(("offset",), 9), LessThanOrEqual(("offset",), 20)], RowFilter(first=9, end=21)),
        ([EqualTo(("offset",), 7)], RowFilter(first=7, end=8)),
        ([GreaterThan(("appended_at",), AT)], RowFilter(since=AT)),
        ([LessThanOrEqual(("appended_at",), AT)], RowFilter(until=AT + TICK)),
        # Left to Spark: other columns, negations, and a time without a zone.
        ([EqualTo(("value",), b"a"), EqualTo(("headers", "a"), "b")], RowFilter()),
        ([Not(EqualTo(("partition",), 3)), LessThan(("appended_at",), datetime(2026, 1, 1))], RowFilter()),  # noqa: DTZ001
        ([EqualTo(("key",), None), In(("offset",), (1, 2))], RowFilter()),
    ],
)
def test_a_filter_excludes_what_cannot_match(filters: list[Filter], expected: RowFilter) -> None:
    assert RowFilter.of(filters) == expected


def test_ranges_are_cut_to_the_partitions_and_offsets() -> None:
    wanted = RowFilter(partitions=frozenset({0, 1}), first=5, end=10)
    ranges = [ReadRange(partition=number, first=first, end=20) for number, first in ((0, 0), (1, 8), (1, 12), (2, 0))]
    assert [(each.partition, each.first, each.end) for each in wanted.ranges(ranges)] == [(0, 5, 10), (1, 8, 10)]


def test_the_narrower_of_option_and_filter_is_planned() -> None:
    wanted = RowFilter(since=AT, until=AT + timedelta(days=2))
    options = PlanOptions(starts={0: 3}, since=AT + timedelta(days=1))
    assert wanted.plan_options(options) == PlanOptions(
        starts={0: 3}, since=AT + timedelta(days=1), until=AT + timedelta(days=2)
    )
    assert RowFilter().plan_options(options) == options
    assert RowFilter(since=AT, until=AT).is_empty


def test_only_messages_of_the_keys_pass() -> None:
    batch = pa.RecordBatch.from_pydict({"key": [b"a", None, b"b", b"a"], "offset": [0, 1, 2, 3]})
    found = list(with_keys([batch, batch.slice(1, 2)], frozenset({b"a", b"c"})))
    assert [one.column("offset").to_pylist() for one in found] == [[0, 3]]


def test_a_reader_has_no_filters_where_spark_would_refuse_it() -> None:
    assert type(batch_reader({"topic": "orders", "url": "http://x"})) is BatchReader
