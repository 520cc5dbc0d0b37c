"""A separate driver, for a session with its own settings: reads a topic in each way, and prints what it read.

`python -m tests.acceptance.spark_read_program` with one JSON object on its standard input.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lakelog.spark import topic
from lakelog.spark.session import store_options
from tests.kit.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    asked = json.load(sys.stdin)
    with local_session(asked["conf"], master=asked["master"]) as spark:
        frame = topic(spark, asked["topic"], url=asked["url"])
        part = topic(spark, asked["topic"], start_offsets={0: asked["start"]}, url=asked["url"])
        store = {f"store.{name}": text for name, text in store_options(spark).items()}
        source = spark.read.format("lakelog").options(topic=asked["topic"], url=asked["url"], **store).load()
        found = {
            "topic": _seen(frame),
            "part": _seen(part),
            "source": _seen(source),
            "files": frame.inputFiles(),
            "executors": spark._jsc.sc().getExecutorMemoryStatus().size() - 1,
        }
    print(json.dumps(found))


def _seen(frame: DataFrame) -> list[list[Any]]:
    """Return, for each partition, the count, the first and last offset, and whether all offsets are distinct."""
    rows = frame.selectExpr("partition", "offset", "length(value) AS length").collect()
    seen: dict[int, list[int]] = {}
    for row in rows:
        seen.setdefault(row.partition, []).append(row.offset)
    return [[number, len(all_), min(all_), max(all_), len(set(all_))] for number, all_ in sorted(seen.items())]


if __name__ == "__main__":
    main()
