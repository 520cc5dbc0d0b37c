"""The option `columns`: which columns of a topic a reader of columns gets, such as Spark.

Spark does not tell a Python source which columns a query uses. The default therefore leaves out twelve columns that are
almost always null: without them, the source reads half as fast again.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from lakelog.client.reading.decoding import SCHEMA as _PLAIN
from lakelog.errors import InvalidRequest
from lakelog.segments.schema import SCHEMA

Columns = tuple[str, ...]

ALL_COLUMNS: Columns = tuple(SCHEMA.names)
DEFAULT_COLUMNS: Columns = ("partition", "offset", "appended_at", "key", "value", "headers", "content_type")


def columns_of(given: str | Sequence[str] | None) -> Columns:
    """Return the columns in their given order: the default for None, all of them for `*`."""
    if given is None:
        return DEFAULT_COLUMNS
    names = tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)
    if names == ("*",):
        return ALL_COLUMNS
    for name in names:
        if name not in ALL_COLUMNS:
            near = difflib.get_close_matches(name, ALL_COLUMNS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidRequest(
                f"A topic has no column {name!r}.{hint} Columns: {', '.join(ALL_COLUMNS)}; `*` for all."
            )
    if len(set(names)) < len(names):
        raise InvalidRequest(f"`columns` names a column twice: {', '.join(names)}.")
    return names


@lru_cache(maxsize=64)
def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the schema of these columns, without the field ids of files."""
    return pa.schema([_PLAIN.field(name) for name in columns])


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema of `arrow_schema`; those that the batch lacks are null."""
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if at < 0 else batch.column(at)
        # Comparing types ignores the field ids within maps, which readers must not see.
        same = column.type.equals(field.type, check_metadata=True)
        columns.append(column if same else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
