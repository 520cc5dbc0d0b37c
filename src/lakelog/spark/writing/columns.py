"""Checks the columns of a DataFrame that become messages, on the driver, before any task runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from lakelog.errors import InvalidRequest
from lakelog.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType)


def _is_headers(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


_KINDS: Mapping[str, tuple[str, Callable[[DataType], bool]]] = {
    "value": ("binary or string", _is_bytes),
    "key": ("binary or string", _is_bytes),
    "headers": ("map<string,string>", _is_headers),
    "partition": ("int", _is_whole),
    "content_type": ("string", _is_text),
    "correlation_id": ("string", _is_text),
    "created_at": ("timestamp", _is_time),
    "expires_at": ("timestamp", _is_time),
}


_READ_ONLY: Mapping[str, DataType] = {
    field.name: field.dataType for field in spark_schema().fields if field.name not in _KINDS
}
_ORIGIN = ("offset", "appended_at", "epoch")
"""Columns that only messages read from a topic have."""


def written_columns(schema: StructType) -> list[str]:
    """Return the columns of a DataFrame that become messages, in its order.

    Rows that were read from a topic can be written unchanged: a DataFrame with `offset`, `appended_at` or `epoch` has
    such rows. Columns that only a read adds are then ignored, and so is `partition`, the partition that the row came
    from.
    """
    kinds = {field.name: field.dataType for field in schema.fields}
    was_read = any(kinds.get(name) == _READ_ONLY[name] for name in _ORIGIN)
    ignored = {name for name, kind in _READ_ONLY.items() if was_read and kinds.get(name) == kind}
    if "idempotency_key" in kinds and not was_read:
        raise InvalidRequest(
            "A write from Spark has no idempotency keys: its write id makes all of it happen once. "
            "Drop the column 'idempotency_key'."
        )
    unknown = [name for name in kinds if name not in _KINDS and name not in ignored]
    if unknown:
        raise InvalidRequest(
            f"A message has no column {', '.join(map(repr, unknown))}. Known columns: {', '.join(_KINDS)}. Select "
            'these, or write the whole row as the value: .selectExpr("to_json(struct(*)) AS value").'
        )
    if "value" not in kinds:
        raise InvalidRequest(
            "Column 'value' is missing. To write the whole row as the value, use "
            '.selectExpr("to_json(struct(*)) AS value").'
        )
    written = [name for name in kinds if name not in ignored and not (was_read and name == "partition")]
    for name in written:
        _check_kind(name, kinds[name])
    return written


def messages(df: DataFrame) -> DataFrame:
    """Return the columns of a DataFrame that a message has, ready to be written to a topic.

    Rows that were read from a topic lose the columns about where they were stored, including `partition`: keys choose
    the partition. A value that is a struct, a map, an array or a variant becomes JSON. All other columns are dropped.

    Args:
        df: The DataFrame, with a column `value`.

    Raises:
        InvalidRequest: If there is no column `value`, or a column has a type that a message does not allow.
    """
    kinds = {field.name: field.dataType for field in df.schema.fields}
    if isinstance(kinds.get("value"), StructType | MapType | ArrayType | VariantType):
        df = df.withColumn("value", functions.to_json("value"))
    was_read = any(kinds.get(name) == _READ_ONLY[name] for name in _ORIGIN)
    dropped = {"partition"} if was_read else set()
    found = df.select(*(name for name in kinds if name in _KINDS and name not in dropped))
    written_columns(found.schema)
    return found


def _check_kind(name: str, kind: DataType) -> None:
    described, fits = _KINDS[name]
    if not fits(kind):
        raise InvalidRequest(
            f"Column {name!r} has type {kind.simpleString()}; in a message it is {described}. "
            f"Cast it or, if it is a struct, use to_json({name}) AS {name}."
        )
