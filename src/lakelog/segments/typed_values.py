"""The typed columns of values: `v`, a struct with the fields of a topic's columns, and `v_error`.

A value that is not JSON, or whose field has another type, has a null `v` and the reason in `v_error`. Readers of values
and writers of files share this code, so both get the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from lakelog.model.columns import LIST, MAP, STRUCT, Column, TopicColumns

VALUE, ERROR = "v", "v_error"

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
        self.type: pa.StructType = pa.struct([pa.field(each.name, _arrow(each)) for each in columns.fields])
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(_object("v", columns.fields)).decode

    def columns_of(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return `v` and `v_error` of values. Both are null for a value that is null."""
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = (None, None) if value is None else self._row(value)
            rows.append(row)
            errors.append(error)
        return pa.array(rows, self.type), pa.array(errors, pa.string())

    def _row(self, value: bytes) -> tuple[Any, str | None]:
        try:
            return self._decode(value), None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return None, str(error)


@lru_cache(maxsize=64)
def typed_values(columns: TopicColumns) -> TypedValues:
    """Return what makes typed columns of the values of a topic with these columns."""
    return TypedValues(columns)


def _arrow(column: Column) -> pa.DataType:
    inner = [pa.field(each.name, _arrow(each)) for each in column.fields]
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
