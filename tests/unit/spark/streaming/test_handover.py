"""Small micro-batches that the planning process hands to Spark, by the calls of PySpark's own runner."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadAllAvailable

import lakelog
from lakelog.client.reading.columns import DEFAULT_COLUMNS
from lakelog.spark.reading.batch_reader import read_split
from lakelog.spark.session import ConnectionSettings, client
from lakelog.spark.source import spark_schema
from lakelog.spark.streaming import handover
from lakelog.spark.streaming.reader import StreamReader

_names = itertools.count()


@pytest.fixture
def topic() -> Iterator[Any]:
    """A topic with 20 messages in two partitions."""
    with client(ConnectionSettings(url=f"memory://handover-{next(_names)}")) as log:
        log.topic("orders").create(2)
        log.topic("orders").publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(20)])
        yield log.topic("orders")


@pytest.fixture
def url(topic: Any) -> str:
    return f"memory://handover-{next(_names) - 1}"


def planned(reader: StreamReader) -> tuple[bytes, int, list[pa.RecordBatch]]:
    """Return what the runner sends to Spark for a micro-batch: its partition, the kind of rows, and the rows."""
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    asked, answer = io.BytesIO(), io.BytesIO()
    for offset in (start, end):
        text = json.dumps(offset).encode()
        asked.write(struct.pack("!i", len(text)) + text)
    asked.seek(0)
    schema = spark_schema(DEFAULT_COLUMNS)
    source: Any = None
    runner.partitions_func(reader, source, schema, 10_000, asked, answer)
    answer.seek(0)
    assert read_int(answer) == 1
    partition = answer.read(read_int(answer))
    kind = read_int(answer)
    rows: list[pa.RecordBatch] = []
    if kind == runner.NON_EMPTY_PYARROW_RECORD_BATCHES:
        read_int(answer)
        rows = list(pa.ipc.open_stream(answer))
    return partition, kind, rows


def read_int(answer: io.BytesIO) -> int:
    [number] = struct.unpack("!i", answer.read(4))
    assert isinstance(number, int)
    return number


def numbers(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return sorted(
        (partition, json.loads(value)["n"])
        for batch in batches
        for partition, value in zip(batch["partition"].to_pylist(), batch["value"].to_pylist(), strict=True)
    )


ALL = [(n % 2, n) for n in (*range(0, 20, 2), *range(1, 20, 2))]


def test_this_version_of_pyspark_was_tested() -> None:
    assert pyspark.__version__ in handover.TESTED
    assert handover.is_supported


def test_a_small_micro_batch_is_handed_over_and_its_partition_reads_the_same_rows(url: str) -> None:
    reader = StreamReader({"url": url, "topic": "orders", "start": "earliest"})
    partition, kind, rows = planned(reader)
    assert kind == runner.NON_EMPTY_PYARROW_RECORD_BATCHES
    assert numbers(rows) == ALL
    assert type(reader) is StreamReader
    assert numbers(list(read_split(pickle.loads(partition)))) == ALL


@pytest.mark.parametrize("size", ["0", "100"])
def test_a_large_micro_batch_is_read_by_tasks(url: str, size: str) -> None:
    reader = StreamReader({"url": url, "topic": "orders", "start": "earliest", "handOverBytes": size})
    partition, kind, rows = planned(reader)
    assert (kind, rows) == (runner.PREFETCHED_RECORDS_NOT_FOUND, [])
    assert numbers(list(read_split(pickle.loads(partition)))) == ALL


def test_another_version_of_pyspark_reads_in_tasks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "is_supported", False)
    _, kind, _ = planned(StreamReader({"url": url, "topic": "orders", "start": "earliest"}))
    assert kind == runner.PREFETCHED_RECORDS_NOT_FOUND


def test_an_empty_micro_batch_runs_as_before(url: str) -> None:
    reader = StreamReader({"url": url, "topic": "orders"})
    start = reader.initialOffset()
    assert reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())) == []
    assert not isinstance(reader, _SimpleStreamReaderWrapper)


def test_a_reader_in_the_middle_is_pickled_without_its_rows(url: str) -> None:
    reader = StreamReader({"url": url, "topic": "orders", "start": "earliest"})
    start = reader.initialOffset()
    reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert isinstance(reader, _SimpleStreamReaderWrapper)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.getCache(start, start) is None
