"""The rows of a backfill: a DataFrame as messages, each with its partition and time. It writes nothing.

The same row always has the same partition and share, in every run: a row without a key is placed by its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, TimestampType

from lakelog.batches import partitions_of
from lakelog.errors import InvalidRequest, first_line
from lakelog.spark.writing.columns import messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

AT, PLACE, SHARE = "lakelog_at", "lakelog_partition", "lakelog_share"
"""The columns for the time, the partition and the share of a row."""
_APPENDED_AT = "appended_at"
_ORDER = "lakelog_order_"
_ROW = "lakelog_row"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """The columns of a DataFrame that have the key, the time and the order of its rows."""

    key: str | None = None
    time: str | None = None
    order: Sequence[str] = ()
    keeps_partition: bool = False
    """Leave the rows of a topic in their partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRows:
    """The rows of one partition or share.

    Attributes:
        number: The number of the partition or share.
        count: The number of its rows.
        fingerprint: A hash of its rows, in hex, which does not depend on their order.
        untimed: Rows without a time.
    """

    number: int
    count: int
    fingerprint: str
    untimed: int


class BackfillRows:
    """The rows, with the columns of a message, `AT`, and the columns of the order."""

    def __init__(self, df: DataFrame, options: RowOptions) -> None:
        kinds = {field.name: field.dataType for field in df.schema.fields}
        time = options.time or (_APPENDED_AT if isinstance(kinds.get(_APPENDED_AT), TimestampType) else None)
        self.has_times = time is not None
        needed = [name for name in (options.key, time, *options.order) if name is not None]
        for name in needed:
            if name not in kinds:
                raise InvalidRequest(f"The rows have no column {name!r}. They have {', '.join(kinds)}.")
        if time is not None and not isinstance(kinds[time], TimestampType):
            raise InvalidRequest(
                f"Column {time!r} has type {kinds[time].simpleString()}; the time of a row is a timestamp. Cast it."
            )
        self.order = [f"{_ORDER}{number}" for number in range(len(options.order))]
        helpers = [
            (F.col(time) if time is not None else F.lit(None).cast("timestamp")).alias(AT),
            *(F.col(name).alias(mine) for name, mine in zip(options.order, self.order, strict=True)),
        ]
        if options.keeps_partition:
            helpers.append(F.col("partition").alias(PLACE))
        self._is_placed = options.keeps_partition
        fields = _message_columns(df, options.key)
        self.columns = list(fields)
        self.frame = df.select(*(column.alias(name) for name, column in fields.items()), *helpers)

    def placed(self, partitions: int) -> DataFrame:
        """Return the rows with their partition in `PLACE`, for a topic with this number of partitions."""
        if self._is_placed:
            return self.frame

        @F.arrow_udf("int")  # type: ignore[attr-defined, untyped-decorator]
        def place(keys: pa.Array) -> pa.Array:
            return pa.array(partitions_of(keys.cast(pa.binary()), partitions), pa.int32())

        found = F.pmod(self._content(), F.lit(partitions)).cast("int")
        if "key" in self.columns:
            found = F.when(F.col("key").isNull(), found).otherwise(place("key"))
        if "partition" in self.columns:
            found = F.coalesce(F.col("partition").cast("int"), found)
        return self.frame.withColumn(PLACE, found)

    @contextmanager
    def shared(self, frame: DataFrame, shares: int) -> Iterator[DataFrame]:
        """Yield the rows with their share in `SHARE`. The rows of a key are in one share, so they keep their order.

        Spark keeps the rows, which each task has sorted by share, so that one share is read without the others.
        """
        number = self._content()
        if "key" in self.columns:
            number = F.when(F.col("key").isNull(), number).otherwise(F.xxhash64("key"))
        share = F.pmod(number, F.lit(shares)).cast("int")
        found = frame.drop(PLACE).withColumns({SHARE: share, _ROW: F.monotonically_increasing_id()})
        found = found.sortWithinPartitions(SHARE, _ROW).drop(_ROW).persist()
        try:
            yield found
        finally:
            found.unpersist()

    def parts(self, frame: DataFrame, by: str) -> list[PartRows]:
        """Count the rows by partition or share."""
        row_hash = F.xxhash64(self._content(), AT) if self.has_times else self._content()
        found = (
            frame.groupBy(by)
            .agg(
                F.count(F.lit(1)).alias("count"),
                F.sum(row_hash.cast("decimal(20,0)")).alias("sum"),
                F.sum(F.col(AT).isNull().cast("long")).alias("untimed"),
            )
            .collect()
        )
        return sorted(
            (
                PartRows(
                    number=row[by],
                    count=row["count"],
                    fingerprint=fingerprint_of(f"{row['count']} {row['sum']}"),
                    untimed=row["untimed"] if self.has_times else 0,
                )
                for row in found
            ),
            key=lambda each: each.number,
        )

    def history(self, frame: DataFrame, now: datetime, tasks: int) -> DataFrame:
        """Return the rows, those of a partition in one task and in order. Rows without times get `now`."""
        timed = frame if self.has_times else frame.withColumn(AT, F.lit(now))
        return (
            timed.repartition(tasks, PLACE)
            .sortWithinPartitions(PLACE, AT, *self.order)
            .select(PLACE, AT, *self.columns)
        )

    def published(self, frame: DataFrame, tasks: int) -> DataFrame:
        """Return rows to publish, those of a key in one task and in order. Their time becomes the time of creation."""
        ordering = [*([AT] if self.has_times else []), *self.order]
        if ordering:
            by = ["key"] if "key" in self.columns else []
            frame = frame.repartition(tasks, *by).sortWithinPartitions(*ordering) if by else frame.sort(*ordering)
        if self.has_times and "created_at" not in self.columns:
            return frame.select(*self.columns, F.col(AT).alias("created_at"))
        return frame.select(*self.columns)

    def _content(self) -> Column:
        """Return a hash of the message."""
        # Spark refuses to hash a map, because equal maps may have their entries in any order.
        return F.xxhash64(
            *(F.sort_array(F.map_entries(name)) if name == "headers" else F.col(name) for name in self.columns)
        )


def parquet_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the rows of Parquet files or folders."""
    try:
        return spark.read.parquet(*paths)
    except AnalysisException as exc:
        raise InvalidRequest(f"The files cannot be read: {first_line(exc, 300)}") from exc


def fingerprint_of(text: str) -> str:
    """Return the hash of a text, in hex."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _message_columns(df: DataFrame, key: str | None) -> dict[str, Column]:
    """Return the columns of the messages. Without a column `value`, the whole row is the value, as JSON."""
    if "value" in df.columns:
        ready = messages(df)
        fields = {name: F.col(name) for name in ready.columns}
        if ready.schema["value"] != df.schema["value"]:
            fields["value"] = F.to_json("value")
    else:
        fields = {"value": F.to_json(F.struct("*"))}
    if key is not None:
        is_bytes = isinstance(df.schema[key].dataType, BinaryType)
        fields["key"] = F.col(key) if is_bytes else F.col(key).cast("string")
    for name in ("key", "value"):
        if name in fields:
            fields[name] = fields[name].cast("binary")
    return fields
