"""A program for spark-submit: copies a topic, and prints where the tasks found Lakelog and Python.

`spark-submit spark_packed_program.py JSON`. It imports nothing but what a packed environment contains.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakelog.spark import configure

if TYPE_CHECKING:
    import pyarrow as pa


def main(asked: dict[str, str]) -> None:
    def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        import lakelog

        rows = sum(batch.num_rows for batch in batches)
        found = {"python": [sys.prefix], "lakelog": [lakelog.__file__], "rows": [rows]}
        yield pyarrow.RecordBatch.from_pydict(found)

    spark = configure(url=asked["url"]).getOrCreate()
    orders = spark.read.format("lakelog").option("topic", "orders").load()
    tasks = orders.mapInArrow(places, "python string, lakelog string, rows long").collect()
    orders.select("key", "value").write.format("lakelog").option("topic", "copies").mode("append").save()
    copies = spark.read.format("lakelog").option("topic", "copies").load().count()
    print(json.dumps({"driver": sys.prefix, "tasks": [task.asDict() for task in tasks], "copies": copies}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
