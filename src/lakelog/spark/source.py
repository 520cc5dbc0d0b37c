"""The data source `lakelog`, with separate modules for read, readStream, write and writeStream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema

from lakelog.client.reading.columns import ALL_COLUMNS, Columns
from lakelog.segments.schema import SCHEMA
from lakelog.spark.options import PINNED, is_stream
from lakelog.spark.session import connection_of, require_topic, short_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@lru_cache(maxsize=64)
def spark_schema(columns: Columns = ALL_COLUMNS) -> StructType:
    """Return columns of a topic in Spark: those of a segment, all nullable."""
    found = from_arrow_schema(pa.schema([SCHEMA.field(name) for name in columns]), prefer_timestamp_ntz=False)
    for field in found.fields:
        field.nullable, field.metadata = True, {}
    return found


class LakelogSource(DataSource):
    """The data source, which Spark finds through the module `pyspark_lakelog`."""

    @classmethod
    def name(cls) -> str:
        return "lakelog"

    def schema(self) -> StructType:
        """Return the columns. `load()` calls it, so that a wrong option or a missing topic is reported there."""
        with short_errors():
            if "deadLetters" in self.options:
                from lakelog.spark.repair.dead_letter_reader import DeadLetterReader, dead_letter_schema

                DeadLetterReader(self.options).check()
                return dead_letter_schema()
            return spark_schema(_check_load(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with short_errors():
            if "deadLetters" in self.options:
                from lakelog.spark.repair.dead_letter_reader import DeadLetterReader

                return DeadLetterReader(self.options)
            from lakelog.spark.reading.batch_reader import batch_reader

            return batch_reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from lakelog.spark.streaming.reader import StreamReader

        with short_errors():
            return StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from lakelog.spark.writing.sink import BatchWriter

        with short_errors():
            return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from lakelog.spark.writing.sink import StreamWriter

        with short_errors():
            return StreamWriter(self.options, schema, overwrite)


def source_with(connection: Mapping[str, str]) -> type[LakelogSource]:
    """Return the data source with a connection that applies unless the options name another server.

    Spark pickles the class with these options when a session registers it. They appear in no plan and no setting.
    """

    class SessionSource(LakelogSource):
        def __init__(self, options: dict[str, str]) -> None:
            is_elsewhere = "url" in CaseInsensitiveDict(options)
            super().__init__(options if is_elsewhere else CaseInsensitiveDict({**connection, **options}))

    return SessionSource


def _check_load(options: Mapping[str, str]) -> Columns:
    """Check all options and that the topic exists. Return the columns."""
    from lakelog.spark.reading.ranges import parse_read_options
    from lakelog.spark.streaming.options import parse_stream_options

    parsed = parse_stream_options(options) if is_stream(options) else parse_read_options(options)
    connection = connection_of(options)
    if PINNED not in options:
        require_topic(connection, parsed.topic)
    return parsed.columns
