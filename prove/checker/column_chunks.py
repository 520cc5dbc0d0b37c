"""Columns in transit through Spark: chunks of many rows, each with the number of its target part.

A chunk is one row for Spark, so Spark sorts and sends thousands of rows instead of millions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prove.history.tables import TABLES, TableColumns, Tables
from prove.history.truth import from_arrow, to_arrow

SCHEMA = "part int, name string, data binary"
_ARROW = pa.schema([("part", pa.int32()), ("name", pa.string()), ("data", pa.binary())])
RESULT, SUMMARY = "#result", "#summary"
"""The names of chunks that carry JSON instead of columns."""
_MOST = 131_072
"""The largest number of rows in a chunk. A Spark row should not exceed a few megabytes."""

Array = npt.NDArray[Any]


def chunk(part: int, name: str, data: bytes) -> pa.RecordBatch:
    """Return one chunk as a Spark row."""
    return pa.record_batch(
        [pa.array([part], pa.int32()), pa.array([name], pa.string()), pa.array([data], pa.binary())], schema=_ARROW
    )


def chunks(part: int, columns: TableColumns) -> Iterator[pa.RecordBatch]:
    """Yield columns as chunks for one part."""
    for first in range(0, len(columns), _MOST):
        some = columns if len(columns) <= _MOST else columns.where(np.arange(first, min(first + _MOST, len(columns))))
        yield chunk(part, columns.name, _packed(some))


def scattered(columns: TableColumns, parts: Array) -> Iterator[pa.RecordBatch]:
    """Yield columns as chunks for many parts. A row whose part is -1 is dropped."""
    if not len(parts):
        return
    order = np.argsort(parts, kind="stable")
    ordered = parts[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-2))
    for begin, end in zip(begins, np.append(begins[1:], len(parts)), strict=True):
        if ordered[begin] >= 0:
            yield from chunks(int(ordered[begin]), columns.where(order[begin:end]))


def arrived(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the data of each chunk."""
    for batch in batches:
        yield from zip(batch.column("name").to_pylist(), batch.column("data").to_pylist(), strict=True)


def gathered(batches: Iterable[pa.RecordBatch]) -> tuple[Tables, list[bytes]]:
    """Return the tables that arrived at a part, and the results that pass through it."""
    found: dict[str, list[TableColumns]] = {}
    results = []
    for name, data in arrived(batches):
        if name == RESULT:
            results.append(data)
        else:
            found.setdefault(name, []).append(unpacked(name, data))
    return Tables(by_name={name: _one(name, found.pop(name)) for name in [*found]}), results


def unpacked(name: str, data: bytes) -> TableColumns:
    with pa.ipc.open_stream(data) as stream:
        return from_arrow(name, stream.read_all())


def _packed(columns: TableColumns) -> bytes:
    sink = pa.BufferOutputStream()
    table = to_arrow(columns)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _one(name: str, parts: list[TableColumns]) -> TableColumns:
    """Return the parts as one table. Columns may be missing, because a scope does not have all of them."""
    if len(parts) == 1:
        return parts[0]
    names = [each for each in TABLES[name] if each in parts[0].arrays]
    return TableColumns(name, {each: np.concatenate([part.arrays.pop(each) for part in parts]) for each in names})
