"""Whole ranges of a topic as Arrow: `read_arrow` and `scan_arrow` over every transport."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import InvalidRequest, OffsetOutOfRange, TopicNotFound


async def test_a_topic_is_one_table(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create(partitions=2)
        await topic.publish_many([lakelog.Outgoing(str(n), key="k", partition=n % 2) for n in range(10)])
        table = await topic.read_arrow()
        assert table.column_names == ["partition", "offset", "appended_at", "key", "value", "headers", "content_type"]
        assert table["partition"].to_pylist() == [0] * 5 + [1] * 5
        assert table["offset"].to_pylist() == [*range(5), *range(5)]
        assert table["value"].to_pylist() == [str(n).encode() for n in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]


async def test_a_read_is_cut_to_times_and_offsets(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many([str(n) for n in range(10)])
        middle = datetime.now(UTC)
        await topic.publish("10")
        for limits, expected in (
            ({"since": middle}, [10]),
            ({"until": middle}, list(range(10))),
            ({"since": "1 hour"}, list(range(11))),
            ({"until": timedelta(hours=1)}, []),
            ({"start_offsets": {0: 3}, "end_offsets": {0: 5}}, [3, 4]),
        ):
            assert (await topic.read_arrow(columns="offset", **limits))["offset"].to_pylist() == expected
        with pytest.raises(OffsetOutOfRange):
            await topic.read_arrow(start_offsets={0: 12})
        with pytest.raises(InvalidRequest, match=r"no column 'valu'\. Did you mean 'value'\?"):
            await topic.read_arrow(columns="valu")
        with pytest.raises(InvalidRequest, match="`since` must be a time"):
            topic.scan_arrow(since="yesterday")


async def test_an_empty_topic_has_a_schema_and_a_missing_one_an_error(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("t").create()
        table = await log.topic("t").read_arrow(columns=["value", "offset"])
        assert table.num_rows == 0
        assert table.schema.equals(pa.schema({"value": pa.binary(), "offset": pa.int64()}))
        with pytest.raises(TopicNotFound):
            await log.topic("other").read_arrow()


async def test_a_scan_plans_once_with_its_first_batch(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish_many([str(n) for n in range(10)])
        scan = topic.scan_arrow(columns="offset")
        batches = [batch async for batch in scan]
        assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(10))


async def test_without_an_object_store_everything_comes_from_the_server(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish("a")
        # Nothing is in the object store, so there is nothing that could not be read directly.
        assert (await topic.read_arrow(direct=True)).num_rows == 1
