"""Runs a function on each of some items in Spark tasks. Results travel as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWERS = pa.schema([("number", pa.int64()), ("answer", pa.string())])
_SPARK_ANSWERS = "number bigint, answer string"

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_tasks(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Result], kind: type[Result]
) -> list[Result]:
    """Run one task per item, and return the results in order. `kind` is the type of a result.

    It uses mapInArrow, which also works on clusters without RDDs.
    """
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = encoded(work(items[number]))
                yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([answer])], schema=_ANSWERS)

    numbers = spark.range(0, len(items), 1, len(items))
    rows = numbers.mapInArrow(run, _SPARK_ANSWERS).collect()
    return [decoded(row["answer"], kind) for row in sorted(rows, key=lambda row: row["number"])]


def encoded(result: object) -> str:
    """Return a result as text that a task can return."""
    return msgspec.json.encode(result).decode()


def decoded(text: str, kind: type[Result]) -> Result:
    return msgspec.json.decode(text, type=kind)
