"""Messages as a Parquet file, for people who look at some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.batches import FETCH


def to_parquet(columns: Mapping[str, Sequence[object]]) -> bytes:
    """Return the file with these columns: those of a fetch, and others as text. Call it in a thread of its own."""
    types = dict(zip(FETCH.names, FETCH.types, strict=True))
    arrays = {name: pa.array(values, types.get(name, pa.string())) for name, values in columns.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content
