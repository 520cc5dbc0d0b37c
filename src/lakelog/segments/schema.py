"""The columns of a segment, and their Parquet field ids.

The ids are part of the format: Iceberg identifies a column by its id. Positions have ids from 1 to 9, the columns of
`batches` from 10 on in their order, and nested fields from 100 on. Columns are only added at the end.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from lakelog.batches import COLUMNS, FETCH
from lakelog.errors import InvalidBatch

FORMAT = 1

TYPED = ("v", "v_error")
"""The columns that a file may have behind the others, computed from the values by `typed_values`. No hash has them."""

_FIELD_ID = b"PARQUET:field_id"


def numbered(field: pa.Field, number: int) -> pa.Field:
    """Return the field with its Parquet field id."""
    return field.with_metadata({_FIELD_ID: str(number).encode()})


_HEADERS = pa.map_(
    numbered(pa.field("key", pa.string(), nullable=False), 100),
    numbered(pa.field("value", pa.string()), 101),
)
_POSITIONS = (
    FETCH.field("partition"),
    FETCH.field("offset"),
    FETCH.field("appended_at"),
    pa.field("epoch", pa.int32()),
)
SCHEMA: pa.Schema = pa.schema(
    [
        *(numbered(field, number) for number, field in enumerate(_POSITIONS, 1)),
        *(
            numbered(field.with_type(_HEADERS) if field.name == "headers" else field, number)
            for number, field in enumerate(COLUMNS, 10)
        ),
    ]
)
POSITIONS = tuple(field.name for field in _POSITIONS)


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with exactly the columns of `SCHEMA`: in order, cast, and null if missing."""
    if batch.schema.equals(SCHEMA):
        return batch
    order = _order(batch.schema)
    if order is not None:
        return batch.select(order)
    missing = next((name for name in POSITIONS if name not in batch.schema.names), None)
    if missing is not None:
        raise InvalidBatch(f"The batch lacks the column {missing!r}, which a segment requires.", column=missing)
    try:
        return pa.RecordBatch.from_arrays([_column(batch, field) for field in SCHEMA], schema=SCHEMA)
    except (pa.ArrowException, ValueError) as exc:
        raise InvalidBatch(f"The batch does not have the columns of a segment: {exc}") from exc


# Cached: comparing types costs more than everything else for a small batch, and there are few different schemas.
@lru_cache(maxsize=64)
def _order(schema: pa.Schema) -> list[int] | None:
    """Return the positions of the columns in such a batch, if all are present with the right types."""
    numbers = [schema.get_field_index(field.name) for field in SCHEMA]
    same = all(n >= 0 and schema.field(n).equals(field) for n, field in zip(numbers, SCHEMA, strict=True))
    return numbers if same else None


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    number = batch.schema.get_field_index(field.name)
    if number < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(number)
    return column if column.type == field.type else column.cast(field.type)
