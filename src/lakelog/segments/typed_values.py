"""The typed columns of values: `v`, a struct with the fields of a topic's columns, and `v_error`.

A value that is not JSON, or whose field has another type, has a null `v` and the reason in `v_error`. Readers of values
and writers of files share this code, so both get the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from lakelog.model.columns import LIST, MAP, STRUCT, Column, TopicColumns
from lakelog.segments.schema import SCHEMA, TYPED, numbered

VALUE, ERROR = TYPED
_VALUE_ID, _ERROR_ID = 200, 201
_ROWS = 8192
"""Values are decoded in parts, because Python needs several times the memory of Arrow for them."""

_PLAIN: dict[str, tuple[Any, pa.DataType]] = {
    "boolean": (bool, pa.bool_()),
    "int": (Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)], pa.int32()),
    "long": (Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], pa.int64()),
    "float": (float, pa.float32()),
    "double": (float, pa.float64()),
    "string": (str, pa.string()),
    "date": (date, pa.date32()),
    "timestamp": (Annotated[datetime, Meta(tz=True)], pa.timestamp("us", "UTC")),
    "binary": (bytes, pa.binary()),
}
"""The Python type that is decoded from JSON, and the Arrow type, of each type of a column."""


class TypedValues:
    """Makes typed columns of values."""

    def __init__(self, columns: TopicColumns) -> None:
        self.version = columns.version
        self.type: pa.StructType = pa.struct([_field(each) for each in columns.fields])
        self.file_schema: pa.Schema = pa.schema(
            [
                *SCHEMA,
                numbered(pa.field(VALUE, self.type), _VALUE_ID),
                numbered(pa.field(ERROR, pa.string()), _ERROR_ID),
            ]
        )
        """The columns of a file with typed values."""
        self.leaves = tuple(_leaves(VALUE, columns.fields))
        """The paths in Parquet of the columns within `v` that have one value in each row."""
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(_object("v", columns.fields)).decode

    def columns_of(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return `v` and `v_error` of values. Both are null for a value that is null."""
        if len(values) > _ROWS:
            parts = [self.columns_of(values.slice(start, _ROWS)) for start in range(0, len(values), _ROWS)]
            found, reasons = zip(*parts, strict=True)
            return pa.concat_arrays(found), pa.concat_arrays(reasons)
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = (None, None) if value is None else self._row(value)
            rows.append(row)
            errors.append(error)
        return pa.array(rows, self.type), pa.array(errors, pa.string())

    def added_to(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return messages with the columns of `SCHEMA` and those of their values."""
        typed = self.columns_of(messages.column("value"))
        return pa.RecordBatch.from_arrays([*messages.columns, *typed], schema=self.file_schema)

    def _row(self, value: bytes) -> tuple[Any, str | None]:
        try:
            return self._decode(value), None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return None, str(error)


@lru_cache(maxsize=64)
def typed_values(columns: TopicColumns) -> TypedValues:
    """Return what makes typed columns of the values of a topic with these columns."""
    return TypedValues(columns)


def _field(column: Column) -> pa.Field:
    return numbered(pa.field(column.name, _arrow(column)), column.id)


def _leaves(path: str, fields: Sequence[Column]) -> Iterator[str]:
    for each in fields:
        if each.type == STRUCT:
            yield from _leaves(f"{path}.{each.name}", each.fields)
        elif each.type not in (LIST, MAP):
            yield f"{path}.{each.name}"


def _arrow(column: Column) -> pa.DataType:
    inner = [_field(each) for each in column.fields]
    if column.type == STRUCT:
        return pa.struct(inner)
    if column.type == LIST:
        return pa.list_(inner[0])
    if column.type == MAP:
        return pa.map_(inner[0].with_nullable(False), inner[1])
    return _PLAIN[column.type][1]


def _decoded(column: Column) -> Any:
    if column.type == STRUCT:
        return _object(column.name, column.fields)
    if column.type == LIST:
        return list[_decoded(column.fields[0]) | None]  # type: ignore[misc]
    if column.type == MAP:
        return dict[str, _decoded(column.fields[1]) | None]  # type: ignore[misc]
    return _PLAIN[column.type][0]


def _object(name: str, fields: Sequence[Column]) -> Any:
    # A missing field stays missing, and Arrow makes it null.
    return TypedDict(name, {each.name: _decoded(each) | None for each in fields}, total=False)  # type: ignore[operator]
