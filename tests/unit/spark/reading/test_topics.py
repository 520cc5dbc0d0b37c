"""Where Spark finds the files of a topic."""

from __future__ import annotations

import pytest

from lakelog.spark.reading.topics import address_of


@pytest.mark.parametrize(
    ("store", "address"),
    [
        ("file:///data/my%20topics/", "file:///data/my topics/e1/a.parquet"),
        ("file:///data/100%25", "file:///data/100%/e1/a.parquet"),
        ("s3://bucket/topics", "s3a://bucket/topics/e1/a.parquet"),
    ],
)
def test_an_address_is_as_hadoop_writes_it(store: str, address: str) -> None:
    """Hadoop does not decode a path."""
    assert address_of(store, "e1/a.parquet") == address
