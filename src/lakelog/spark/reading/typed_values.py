"""Typed values: the column `value` as a struct or a variant instead of bytes.

A class is described by the JSON Schema that a topic of this type would have, so that both have the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from lakelog.client.schemas import schema_of_type
from lakelog.errors import InvalidRequest
from lakelog.model.columns import TopicColumns
from lakelog.segments.schema import TYPED
from lakelog.segments.typed_values import typed_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakelog.model.topic_info import TopicInfo

ValueType = str | type | DataType
"""A class, a schema of Spark as DDL or as a type, or `json`."""
JSON = "json"
_TYPED = "_typed"

_PLAIN: Mapping[str, type[DataType]] = {
    "boolean": BooleanType,
    "integer": LongType,
    "number": DoubleType,
    "string": StringType,
}
_FORMATS: Mapping[str, type[DataType]] = {"date-time": TimestampType, "date": DateType}


def with_value(frame: DataFrame, kind: ValueType | None) -> DataFrame:
    """Return the DataFrame with typed values. Without a type, return it unchanged.

    A value that is not JSON, or has other types, becomes null or has fields that are null.
    """
    if kind is None:
        return frame
    if "value" not in frame.columns:
        raise InvalidRequest("A typed value needs the column 'value'. Add it to `columns`.")
    text = F.col("value").cast("string")
    if isinstance(kind, str) and kind.strip().lower() == JSON:
        return frame.withColumn("value", F.try_parse_json(text))
    return frame.withColumn("value", F.from_json(text, kind if isinstance(kind, str) else _schema_of(kind)))


def columns_of_topic(info: TopicInfo) -> TopicColumns:
    """Return the columns of a topic; raise `InvalidRequest` if it has none."""
    if info.columns is None:
        raise InvalidRequest(
            f"Topic '{info.name}' has no columns. Set them with `lakelog topics alter {info.name} --columns FILE`.",
            topic=info.name,
        )
    return info.columns


def with_typed(frame: DataFrame, columns: TopicColumns) -> DataFrame:
    """Return the DataFrame with the typed columns of its values: `v` and `v_error`."""
    if "value" not in frame.columns:
        raise InvalidRequest("Typed columns need the column 'value'. Add it to `columns`.")

    @F.arrow_udf(spark_typed(columns))  # type: ignore[attr-defined, untyped-decorator]
    def typed(values: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays(typed_values(columns).columns_of(values), names=TYPED)

    return frame.select("*", typed("value").alias(_TYPED)).select("*", f"{_TYPED}.*").drop(_TYPED)


def spark_typed(columns: TopicColumns) -> StructType:
    """Return the typed columns of values in Spark: `v` and `v_error`."""
    found = from_arrow_schema(
        pa.schema(list(typed_values(columns).file_schema)[-len(TYPED) :]), prefer_timestamp_ntz=False
    )
    return StructType([StructField(field.name, field.dataType) for field in found])


def _schema_of(kind: type | DataType) -> Any:
    if isinstance(kind, DataType):
        return kind
    found = spark_type(schema_of_type(kind))
    if not isinstance(found, StructType | ArrayType | MapType):
        raise InvalidRequest(
            f"{kind.__name__!r} is not a class with fields. Give a class, a schema such as 'total INT', or 'json'."
        )
    return found


def spark_type(schema: Mapping[str, Any] | bool) -> DataType:
    """Return the type of Spark for a JSON Schema. A value of several types becomes a variant."""
    if isinstance(schema, bool):
        return VariantType()
    return _type_of(schema, schema.get("$defs", {}))


def _type_of(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> DataType:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # A type that contains itself has no end, so what it contains of itself is a variant.
        return _type_of(defs.get(name, {}), {other: each for other, each in defs.items() if other != name})
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            some = [each for each in schema[several] if each != {"type": "null"}]
            return _type_of(some[0], defs) if len(some) == 1 else VariantType()
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object":
        return _object(schema, defs)
    if kind == "array":
        return ArrayType(_inner(schema.get("items"), defs))
    if kind == "string":
        return _text(schema)
    if kind is None and "enum" in schema and all(isinstance(each, str | None) for each in schema["enum"]):
        return StringType()
    return _PLAIN.get(str(kind), VariantType)()


def _object(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> DataType:
    if schema.get("properties"):
        fields = schema["properties"].items()
        return StructType([StructField(name, _inner(each, defs)) for name, each in fields])
    return MapType(StringType(), _inner(schema.get("additionalProperties"), defs))


def _inner(schema: Any, defs: Mapping[str, Any]) -> DataType:
    return _type_of(schema, defs) if isinstance(schema, Mapping) else VariantType()


def _text(schema: Mapping[str, Any]) -> DataType:
    if schema.get("contentEncoding") == "base64":
        return BinaryType()
    return _FORMATS.get(schema.get("format", ""), StringType)()
