"""A program of a Spark Connect client, in a process without a JVM: reads, streams and writes topics.

`python -m tests.acceptance.spark_connect_program` with one JSON object on its standard input. It prints what it read.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from lakelog.spark import attach, configure, messages, read, replay, stream, subscribe, tier, topic, watch


def main(asked: dict[str, str]) -> None:
    spark = configure(SparkSession.builder.remote(asked["remote"]), url=asked["url"]).getOrCreate()
    name = asked["topic"]
    found: dict[str, Any] = {
        "topic": topic(spark, name, value="n INT").where("value.n >= 5").count(),
        "format": spark.read.format("lakelog").option("topic", name).load().count(),
        "read": read(spark, name, startOffsets={0: 1}).count(),
        "attach": attach(spark, topics=[name]),
        "sql": spark.sql("SELECT count(*) FROM lakelog_orders").collect()[0][0],
    }
    watcher = watch(spark)
    query = (
        messages(stream(spark, name, group="connect", start="earliest"))
        .writeStream.queryName("copy")
        .format("lakelog")
        .options(topic="copy", checkpointLocation=f"{asked['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["stream"] = topic(spark, "copy").count()
    watcher.stop()
    found["subscribe"] = subscribe(spark, name, "workers", print, until_empty=True, start_from="earliest").acked
    found["replay"] = replay(spark, name, to="replayed").messages
    found["tier"] = tier(spark, name, min_age=0).messages
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.load(sys.stdin))
