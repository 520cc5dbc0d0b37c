"""The columns of a hot batch, their numbers, and the columns that a reader gets.

The number of a column is part of the format: it is the bit in the column mask of a payload. Columns are only added at
the end. This module converts nothing.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from lakelog.errors import UnsupportedFormat

FORMAT = 1

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(pa.string(), pa.string())

COLUMNS: tuple[pa.Field, ...] = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS),
    pa.field("content_type", pa.string()),
    pa.field("correlation_id", pa.string()),
    pa.field("producer", pa.binary(16)),
    pa.field("sequence", pa.int64()),
    pa.field("created_at", TIME),
    pa.field("expires_at", TIME),
    pa.field("target_group", pa.string()),
    pa.field("lineage", pa.string()),
    pa.field("idempotency_key", pa.string()),
    # Reserved: nothing writes these columns yet.
    pa.field("schema_id", pa.int32()),
    pa.field("encryption_key_id", pa.string()),
    pa.field("origin", pa.string()),
)
NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
TYPES: dict[str, pa.DataType] = {column.name: column.type for column in COLUMNS}
BITS: dict[str, int] = {name: 1 << number for number, name in enumerate(NAMES)}

# Columns that a caller may send. The server sets all other columns.
PUBLIC: tuple[str, ...] = (
    "key",
    "value",
    "headers",
    "content_type",
    "correlation_id",
    "created_at",
    "expires_at",
    "idempotency_key",
)
PUBLIC_MASK = sum(BITS[name] for name in PUBLIC)

# Columns that a reader gets: the position of the message, when it was appended, and all of the above.
FETCH = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("appended_at", TIME),
        *COLUMNS,
    ]
)


@lru_cache(maxsize=1024)
def schema_of(mask: int) -> pa.Schema:
    """Return the columns of a mask. It always includes the value: without a column, a batch has no length."""
    if mask >> len(COLUMNS) or not mask & BITS["value"]:
        raise UnsupportedFormat(f"Column mask {mask:#x} is unknown to this version. Upgrade Lakelog.", mask=mask)
    return pa.schema([column for number, column in enumerate(COLUMNS) if mask >> number & 1])


@lru_cache(maxsize=1024)
def mask_of(names: tuple[str, ...]) -> int:
    """Return the mask of these columns. Unknown names are ignored."""
    return sum(BITS.get(name, 0) for name in names)
