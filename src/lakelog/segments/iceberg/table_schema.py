"""The schema, the partitioning and the order of a topic as an Iceberg table, from the columns of a segment.

Columns keep the field ids of the files, because Iceberg finds a column in a file by its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pyarrow as pa

from lakelog.model.columns import TopicColumns, walk
from lakelog.model.times import EPOCH
from lakelog.segments.schema import SCHEMA
from lakelog.segments.typed_values import typed_values

BY_DAY, BY_PARTITION = 0, 1
"""The ids of the partition specs. A file of an earlier version may cross midnight, and then has no single day."""
PARTITION_FIELD, DAY_FIELD = 1000, 1001
SORT_ORDER = 1
LAST_COLUMN_ID = 101

_PARTITION, _OFFSET, _APPENDED_AT, _EPOCH = 1, 2, 3, 4
KEY_COLUMN = 10
"""The id of the column `key`."""
_FIELD_ID = b"PARQUET:field_id"
_TYPES: dict[Any, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


@cache
def iceberg_schema(columns: TopicColumns | None = None) -> dict[str, Any]:
    """Return the schema of the table, as JSON of Iceberg. Its id is the version of the topic's columns, or 0."""
    if columns is None:
        return {"type": "struct", "schema-id": 0, **_struct(SCHEMA)}
    return {"type": "struct", "schema-id": columns.version, **_struct(typed_values(columns).file_schema)}


def last_column_id(columns: TopicColumns) -> int:
    """Return the highest id of a field in the schema with these columns."""
    return max(each.id for each in walk(columns.fields))


def partition_specs() -> list[dict[str, Any]]:
    """Return the partition specs; new files have the first one."""
    partition = {"source-id": _PARTITION, "field-id": PARTITION_FIELD, "name": "partition", "transform": "identity"}
    day = {"source-id": _APPENDED_AT, "field-id": DAY_FIELD, "name": "appended_at_day", "transform": "day"}
    return [{"spec-id": BY_DAY, "fields": [partition, day]}, {"spec-id": BY_PARTITION, "fields": [partition]}]


def sort_orders() -> list[dict[str, Any]]:
    """Return the order of the rows in a file: by offset."""
    field = {"source-id": _OFFSET, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}
    return [{"order-id": SORT_ORDER, "fields": [field]}]


def day_of(time: datetime) -> int:
    """Return the day in UTC, counted from 1970."""
    return int(time.timestamp() // 86_400)


def int_bytes(value: int) -> bytes:
    """Return an int as Iceberg stores bounds."""
    return value.to_bytes(4, "little", signed=True)


def long_bytes(value: int) -> bytes:
    """Return a long as Iceberg stores bounds."""
    return value.to_bytes(8, "little", signed=True)


def micros_of(time: datetime) -> int:
    """Return the microseconds since 1970."""
    since = time.astimezone(UTC) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def bounds_of(partition: int, offsets: tuple[int, int], times: tuple[datetime, datetime]) -> list[dict[int, bytes]]:
    """Return the lowest and the highest values of a file by field id.

    Args:
        partition: The partition of the file.
        offsets: The offsets of its first and last message.
        times: The append times of its first and last message.
    """
    return [
        {_PARTITION: int_bytes(partition), _OFFSET: long_bytes(offset), _APPENDED_AT: long_bytes(micros_of(time))}
        for offset, time in zip(offsets, times, strict=True)
    ]


NEVER_NULL = (_PARTITION, _OFFSET, _APPENDED_AT, _EPOCH)
"""The columns that have a value in each row."""


def _id_of(field: pa.Field) -> int:
    return int(field.metadata[_FIELD_ID])


def _struct(fields: Iterable[pa.Field]) -> dict[str, Any]:
    return {
        "fields": [
            {"id": _id_of(field), "name": field.name, "required": False, "type": _type_of(field.type)}
            for field in fields
        ]
    }


def _type_of(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "struct", **_struct(kind)}
    if pa.types.is_list(kind):
        element = kind.value_field
        return {
            "type": "list",
            "element-id": _id_of(element),
            "element-required": False,
            "element": _type_of(element.type),
        }
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "key-id": _id_of(kind.key_field),
            "key": _type_of(kind.key_type),
            "value-id": _id_of(kind.item_field),
            "value-required": False,
            "value": _type_of(kind.item_type),
        }
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    return _TYPES[kind]
