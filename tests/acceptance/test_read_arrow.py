"""`read_arrow` has the messages of the log, hot and cold, and other libraries for columns take them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import ConfigurationError
from lakelog.segments.hashing import ContentHash
from lakelog.segments.schema import SCHEMA, conform
from tests.acceptance.client_kit import ThreadServer
from tests.kit.cold import tier_by_hand

COLD, ALL = 3_000, 4_000


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[lakelog.Topic[object], Path, str]]:
    """Yield a topic whose first messages are in files, the folder of the files, and the hash of its log."""
    folder = tmp_path_factory.mktemp("objects")
    with ThreadServer(folder.as_uri()) as server, lakelog.connect(server.url) as log:
        topic = log.topic("orders")
        topic.create(partitions=2)
        _publish(topic, 0, COLD)
        expected = _log_hash(log, topic)
        tier_by_hand(log, "orders", segment_bytes=10_000)
        # Recorded before the first file existed: the files must not be compared with themselves.
        assert _hash(topic.read_arrow(columns="*")) == expected
        _publish(topic, COLD, ALL)
        yield topic, folder, _log_hash(log, topic)


def _publish(topic: lakelog.Topic[object], first: int, end: int) -> None:
    messages = [
        lakelog.Outgoing({"n": n}, key=f"k{n % 7}", headers={"n": str(n)} if n % 3 else None, partition=n % 2)
        for n in range(first, end)
    ]
    # Several batches, because a batch is never cut into two segments.
    for at in range(0, len(messages), 500):
        topic.publish_many(messages[at : at + 500])


def _log_hash(log: lakelog.Lakelog, topic: lakelog.Topic[object]) -> str:
    """Return the hash of what a server returns for each partition."""
    whole = ContentHash(SCHEMA)
    for partition in topic.describe().partition_list:
        for batch in log.lake.read_range("orders", partition.partition, 0, partition.high_watermark):
            whole.update(conform(batch))
    return whole.hexdigest()


def _hash(batches: pa.Table | pa.RecordBatchReader) -> str:
    whole = ContentHash(SCHEMA)
    for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
        whole.update(conform(batch))
    return whole.hexdigest()


@pytest.mark.parametrize("direct", [True, False, None])
def test_hot_and_cold_messages_have_the_hash_of_the_log(
    history: tuple[lakelog.Topic[object], Path, str], direct: bool | None
) -> None:
    topic, _, expected = history
    table = topic.read_arrow(columns="*", direct=direct)
    assert table.num_rows == ALL
    assert _hash(table) == expected
    assert _hash(topic.scan_arrow(columns="*", direct=direct)) == expected


def test_polars_duckdb_and_pandas_take_tables_and_scans(history: tuple[lakelog.Topic[object], Path, str]) -> None:
    topic, _, _ = history
    total = sum(range(ALL))
    for taken in (topic.read_arrow, topic.scan_arrow):
        frame = pl.from_arrow(taken())
        assert isinstance(frame, pl.DataFrame)
        numbers = frame["value"].cast(pl.String).str.json_path_match("$.n").cast(pl.Int64)
        assert (frame.height, numbers.sum()) == (ALL, total)
        orders = duckdb.from_arrow(taken(columns=["partition", "key", "value"]))
        found = orders.aggregate("count(*), sum((decode(value)->>'n')::int), count(distinct key)")
        assert found.fetchall() == [(ALL, total, 7)]
    for columns in (topic.read_arrow().to_pandas(), topic.scan_arrow().read_pandas()):
        assert isinstance(columns, pd.DataFrame)
        assert columns.groupby("partition").size().to_dict() == {0: ALL // 2, 1: ALL // 2}


def test_files_that_this_process_cannot_read_come_through_the_server(
    history: tuple[lakelog.Topic[object], Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, _, expected = history
    # The folder is missing, as on another machine. The server runs in this process and has its store open already.
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    assert _hash(topic.read_arrow(columns="*")) == expected
    with pytest.raises(ConfigurationError, match="does not exist on this machine"):
        topic.read_arrow(direct=True)


def test_a_file_that_was_replaced_after_the_plan_is_read_through_the_server(tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    with ThreadServer(objects.as_uri()) as server, lakelog.connect(server.url) as log:
        topic = log.topic("orders")
        topic.create(partitions=2)
        _publish(topic, 0, COLD)
        segments = tier_by_hand(log, "orders", segment_bytes=10_000)
        assert len(segments) > 2
        expected = _hash(topic.read_arrow(columns="*"))
        # The hot batches still exist, so the server does not need the file.
        (objects / segments[1].path).unlink()
        assert _hash(topic.read_arrow(columns="*")) == expected
        assert _hash(topic.scan_arrow(columns="*")) == expected
        shutil.rmtree(objects)
        assert _hash(topic.read_arrow(columns="*")) == expected


def test_one_call_reads_a_topic(history: tuple[lakelog.Topic[object], Path, str]) -> None:
    topic, _, _ = history
    url = repr(topic).partition("url='")[2].rstrip("')")
    table = lakelog.read_arrow("orders", since="1 day", columns="value", url=url)
    assert table.num_rows == ALL
    sink = io.BytesIO()
    pa.ipc.new_stream(sink, table.schema).write_table(table)
    assert sink.tell() > 0
