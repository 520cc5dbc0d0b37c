"""Runs a query in Spark for each line of its input, and writes the rows as Arrow: `iceberg_spark.py CONF QUERY FILE`.

It runs in the environment of `scripts/install --part iceberg`, and imports nothing of Lakelog.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession


def main(conf: dict[str, str], query: str, path: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, setting in conf.items():
        builder = builder.config(name, setting)
    session = builder.getOrCreate()
    for _ in sys.stdin:
        rows = session.sql(query).toArrow()
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        print("done", flush=True)
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), *sys.argv[2:])
