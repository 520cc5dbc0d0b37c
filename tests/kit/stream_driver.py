"""Streaming queries in a separate driver process that can be killed: `python -m tests.kit.stream_driver JSON`.

It prints `started` when all queries run. It exits with 0 when they have ended, or with 1 and the error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import psutil

from lakelog import failpoints
from tests.kit.process import Process, Supervisor
from tests.kit.spark import environment, local_session


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query that reads from `lakelog` and writes. `sink` is a format; `columns` are expressions, or all columns if
    empty.
    """

    source: dict[str, str]
    checkpoint: str
    sink: str = "parquet"
    sink_options: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: ["*"])
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A driver with its queries; with `available_now` they read the existing messages and end."""

    queries: list[Query]
    master: str = "local[2]"
    available_now: bool = False
    conf: dict[str, str] = field(default_factory=dict)

    def start(self, supervisor: Supervisor, *, points: str = "") -> Process:
        """`points` are the fail points of driver and executors."""
        argv = [sys.executable, "-m", "tests.kit.stream_driver", json.dumps(asdict(self))]
        return supervisor.start(argv, env={**environment(), failpoints.ENVIRONMENT_VARIABLE: points}, name="driver")


def stopped(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that have stopped themselves at a fail point."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process)
    return found


def main(text: str) -> None:
    given = json.loads(text)
    driver = Driver(**{**given, "queries": [Query(**query) for query in given["queries"]]})
    conf = {
        **driver.conf,
        f"spark.executorEnv.{failpoints.ENVIRONMENT_VARIABLE}": os.environ[failpoints.ENVIRONMENT_VARIABLE],
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    with local_session(conf, master=driver.master) as spark:
        running = []
        for query in driver.queries:
            frame = spark.readStream.format("lakelog").options(**query.source).load()
            writer = frame.selectExpr(*query.columns).writeStream.format(query.sink).options(**query.sink_options)
            writer = writer.option("checkpointLocation", query.checkpoint)
            writer = writer.queryName(query.name) if query.name else writer
            running.append((writer.trigger(availableNow=True) if driver.available_now else writer).start())
        print("started", flush=True)
        if not driver.available_now:
            spark.streams.awaitAnyTermination()
        for each in running:
            each.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
