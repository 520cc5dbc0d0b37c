"""The task of a key table: it writes the newest messages of one bucket of keys after another to files.

A task decides nothing. Each attempt uses unique file names, so a task that runs twice, or after its driver died, does
no harm.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog import failpoints
from lakelog.segments.iceberg.key_files import KeyFile
from lakelog.segments.layout import key_path
from lakelog.segments.schema import SCHEMA, conform
from lakelog.spark.pipelines.tasks import decoded, encoded
from lakelog.spark.reading.range_reader import ReadTarget, store_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET = "lakelog_bucket"
_ANSWERS = pa.schema([("answer", pa.string())])
_GROUP_ROWS = 128 << 10


def write_buckets(rows: DataFrame, place: ReadTarget, environment_id: int) -> list[KeyFile]:
    """Write rows that are sorted by `BUCKET` and key, in Spark tasks. A bucket is in one task."""
    found = rows.mapInArrow(partial(_written, place, environment_id), "answer string").collect()
    return [decoded(row["answer"], KeyFile) for row in found]


def _written(place: ReadTarget, environment_id: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pending = ((bucket, part) for batch in batches for bucket, part in _by_bucket(batch))
    following = next(pending, None)
    with tempfile.TemporaryDirectory(prefix="lakelog-latest-") as folder:
        while following is not None:
            bucket, count = following[0], 0
            file = Path(folder) / f"{bucket}.parquet"
            with pq.ParquetWriter(file, SCHEMA, compression="zstd", compression_level=1, store_schema=False) as writer:
                while following is not None and following[0] == bucket:
                    writer.write_batch(following[1], row_group_size=_GROUP_ROWS)
                    count += following[1].num_rows
                    following = next(pending, None)
            path = key_path(environment_id, place.incarnation, bucket)
            assert place.store is not None
            failpoints.hit("latest.before_put")
            store_of(place.store, place.store_options).put(path, file)
            made = KeyFile(path=path, rows=count, bytes=file.stat().st_size)
            file.unlink()
            yield pa.RecordBatch.from_arrays([pa.array([encoded(made)])], schema=_ANSWERS)


def _by_bucket(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    buckets = rows.column(BUCKET).to_numpy()
    messages = conform(rows.drop_columns([BUCKET]))
    edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(edges):
        if end > start:
            yield int(buckets[start]), messages.slice(start, end - start)
