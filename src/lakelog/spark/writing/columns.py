"""Which columns of a DataFrame a message is made of. Looked at on the driver, before any task runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.types import (
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
)

from lakelog.errors import InvalidRequest


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


def check_columns(schema: StructType) -> None:
    """Refuses a DataFrame whose rows are no messages, and says how to make it one."""
    for field in schema.fields:
        if field.name == "idempotency_key":
            raise InvalidRequest(
                "Rows of a write have no idempotency keys: the write id makes the whole of it happen once. "
                "Drop the column 'idempotency_key'."
            )
        if field.name not in _KINDS:
            raise InvalidRequest(
                f"A message has no column {field.name!r}; it has {', '.join(_KINDS)}. Select these, or put the whole "
                'row into the value: .selectExpr("to_json(struct(*)) AS value").'
            )
        described, fits = _KINDS[field.name]
        if not fits(field.dataType):
            found = field.dataType.simpleString()
            raise InvalidRequest(
                f"Column {field.name!r} is {found}; a message's is {described}. "
                f"Cast it, or, for a struct, write to_json({field.name}) AS {field.name}."
            )
    if "value" not in schema.fieldNames():
        raise InvalidRequest(
            "Column 'value' is missing; the whole row becomes the value by "
            '.selectExpr("to_json(struct(*)) AS value").'
        )
