"""`lakelog.spark.read` and `stream`: topics as DataFrames of `format("lakelog")`, with the connection of the session.

The connection is passed as options, which reach every process that plans or reads. Spark redacts the URL and the token
where it shows options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from lakelog.spark.reading.typed_values import ValueType, columns_of_topic, with_typed, with_value
from lakelog.spark.session import ConnectionSettings, client, connection_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Option = str | int | float | bool | datetime | Mapping[int, int]


def read(
    spark: SparkSession,
    topic: str,
    *,
    value: ValueType | None = None,
    typed: bool = False,
    url: str | None = None,
    token: str | None = None,
    **options: Option,
) -> DataFrame:
    """Return a topic as a table of `format("lakelog")`, which each query plans again.

    Use it where `topic` does not fit: each query then sees the messages that exist when it runs.

    Args:
        spark: The session.
        topic: The name of the topic.
        value: The type of the values: a class, such as a dataclass, a msgspec.Struct or a pydantic model; a schema,
            such as "total INT, id STRING"; or "json" for variants. A value that does not fit becomes null or has null
            fields. Default: bytes.
        typed: Add the column `v`, a struct with the columns that the topic has now, and `v_error`, the reason why a
            value has no `v`. Both are computed from the value. Default: False.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.
        options: Options of `spark.read.format("lakelog")`, such as `since="1 day"` or `startOffsets={0: 12}`.

    Raises:
        TopicNotFound: If the topic does not exist.
        InvalidRequest: If an option is unknown or has a wrong value, or if `typed` is set and the topic has no columns.
    """
    connection = connection_to(url, token, spark)
    given = {**connection.options, "topic": topic, **option_texts(options)}
    frame = spark.read.format("lakelog").options(**given).load()
    return with_value(_with_typed(frame, connection, topic) if typed else frame, value)


def stream(
    spark: SparkSession,
    topic: str,
    *,
    value: ValueType | None = None,
    typed: bool = False,
    url: str | None = None,
    token: str | None = None,
    **options: Option,
) -> DataFrame:
    """Return a topic as a stream of `format("lakelog")`.

    Args:
        spark: The session.
        topic: The name of the topic.
        value: The type of the values: a class, such as a dataclass, a msgspec.Struct or a pydantic model; a schema,
            such as "total INT, id STRING"; or "json" for variants. A value that does not fit becomes null or has null
            fields. Default: bytes.
        typed: Add the column `v`, a struct with the columns that the topic has now, and `v_error`, the reason why a
            value has no `v`. Both are computed from the value. Default: False.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.
        options: Options of `spark.readStream.format("lakelog")`, such as `group="billing"` or `start="earliest"`.

    Raises:
        TopicNotFound: If the topic does not exist.
        InvalidRequest: If an option is unknown or has a wrong value, or if `typed` is set and the topic has no columns.
    """
    connection = connection_to(url, token, spark)
    given = {**connection.options, "topic": topic, **option_texts(options)}
    frame = spark.readStream.format("lakelog").options(**given).load()
    return with_value(_with_typed(frame, connection, topic) if typed else frame, value)


def _with_typed(frame: DataFrame, connection: ConnectionSettings, topic: str) -> DataFrame:
    return with_typed(frame, columns_of_topic(client(connection).topic(topic).describe()))


def option_texts(options: Mapping[str, Option]) -> dict[str, str]:
    """Return the options as text: offsets by partition as JSON, and times in ISO 8601."""
    return {name: _text(given) for name, given in options.items()}


def _text(given: Option) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, datetime):
        return given.isoformat()
    if isinstance(given, Mapping):
        return json.dumps({str(name): found for name, found in given.items()})
    return str(given)
