"""A program for spark-submit: reads a topic in every way that needs a connection, and prints what it read.

`spark-submit spark_submit_program.py JSON`. The URL of the server is in no environment variable, as where a notebook
or spark-submit starts the JVM before the program runs.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from lakelog.spark import configure, read, stream, topic


def main(asked: dict[str, str]) -> None:
    spark = configure(url=asked["url"], token=asked["token"]).getOrCreate()
    assert configure(url=asked["url"], token=asked["token"]).getOrCreate() is spark
    name = asked["topic"]
    # The connection of the session, without any option.
    found: dict[str, Any] = {
        "format": spark.read.format("lakelog").option("topic", name).load().count(),
        "topic": topic(spark, name).count(),
        "source": sys.modules["lakelog"].__file__,
    }
    spark.sql(f"CREATE TEMP VIEW orders USING lakelog OPTIONS (topic '{name}')")
    found["sql"] = spark.sql("SELECT count(*) FROM orders").collect()[0][0]
    # The connection as options, as in a session that was made without `configure`.
    frame = read(spark, name, startOffsets={0: 1})
    found["read"] = frame.count()
    query = (
        stream(spark, name, start="earliest")
        .writeStream.queryName("copy")
        .format("parquet")
        .options(path=f"{asked['folder']}/table", checkpointLocation=f"{asked['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["stream"] = spark.read.parquet(f"{asked['folder']}/table").count()
    shown = [
        frame._jdf.queryExecution().toString(),
        frame._jdf.queryExecution().analyzed().treeString(),
        query._jsq.explainInternal(True),
        query.recentProgress[-1].json,
        *_pages(spark),
    ]
    found["shows_the_token"] = [text for text in shown if asked["token"] in text]
    found["pages"] = len(shown)
    print(json.dumps(found))


def _pages(spark: Any) -> list[str]:
    """Return what Spark's UI shows of settings, plans and jobs."""
    root = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    found = []
    for page in ("environment", "jobs", "sql?details=true&planDescription=true"):
        with urllib.request.urlopen(f"{root}/{page}") as answer:
            found.append(answer.read().decode())
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
