"""A driver of the tiering pipeline, which makes one pass after another over some topics in one JVM.

The driver runs the pipeline as users do. It may be killed anywhere, and two drivers may work at once. A fault can write
a file with the name of a driver. It lists the fail points at which the driver or its tasks die or stop, from the next
pass on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

import lakelog
from lakelog import failpoints
from lakelog.errors import LakelogError, PipelineBusy
from lakelog.spark.pipelines import runs, tasks, tier_tasks, tiering
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import TOKEN
from prove.lab.load.plan import LoadClient, TieringPlan
from prove.lab.shared_progress import ProgressField
from tests.kit.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = "points"
"""The folder with the fail points of each driver."""
EVERY = "every"
"""The file with the fail points of all other drivers."""
UNELECTED = "unelected"
"""If this file exists, all drivers work at once, without an election."""
CALL_SECONDS = 12.0
"""Timeout of a call. The default of half a minute is a large part of a run."""
NICE = 10
_armed = ""


class TieringDriver:
    """One driver."""

    def __init__(self, plan: TieringPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        self._points = Path(plan.folder) / POINTS
        self._recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)

    def run(self) -> None:
        with _session(self._plan) as spark:
            self._recorder.sample("driver", int(bool(self._plan.after)), group=self._plan.after)
            while not self._client.stopped:
                self._client.put(ProgressField.BUSY, 1)
                for topic in self._plan.topics:
                    self._arm()
                    self._pass(spark, topic)
                self._client.put(ProgressField.BUSY, 0)
                self._client.rest(self._plan.every if self._read_points(UNELECTED) is None else 0.1)
        self._recorder.close()

    def _read_points(self, name: str) -> str | None:
        try:
            return (self._points / name).read_text()
        except FileNotFoundError:
            return None

    def _pass(self, spark: SparkSession, topic: str) -> None:
        plan = self._plan
        try:
            done = tiering.tier(
                spark, topic, segment_bytes=plan.segment_bytes, min_bytes=plan.segment_bytes, min_age=plan.min_age
            )
        except PipelineBusy:
            # It is the turn of the other driver.
            return
        except (LakelogError, PySparkException, Py4JError) as error:
            print(f"{topic}: not now: {error!r}"[:1000], flush=True)
            self._recorder.sample("tiering", 0, topic=topic, stale=True)
            return
        print(f"{topic}: {done}", flush=True)
        self._recorder.sample("tiering", done.settled + done.taken + done.dropped, done.segments, topic=topic)

    def _arm(self) -> None:
        """Arm the fail points in this process and in its tasks."""
        points = self._read_points(self._plan.name) or self._read_points(EVERY) or ""
        setattr(tiering, "recorded", runs.recorded if self._read_points(UNELECTED) is None else _unelected)  # noqa: B010
        _arm_once(points)
        for name in ("_write", "_verify"):
            setattr(tier_tasks, name, partial(_at_work, points, name))


def _at_work(points: str, name: str, *given: Any) -> tier_tasks.TierResult:
    """Arm the fail points in a task, and run the function of that name."""
    _arm_once(points)
    done: tier_tasks.TierResult = getattr(tier_tasks, name)(*given)
    return done


def _arm_once(points: str) -> None:
    """Arm the fail points once. Hits are counted from then on."""
    global _armed
    if points != _armed:
        failpoints.arm(points)
        _armed = points


@contextmanager
def _session(plan: TieringPlan) -> Iterator[SparkSession]:
    os.environ.update(plan.environment)
    assert lakelog.connect.__kwdefaults__ is not None
    lakelog.connect.__kwdefaults__["timeout"] = CALL_SECONDS
    folder = f"{plan.folder}/spark"
    conf = {
        "spark.lakelog.url": "http://" + ",".join(f"127.0.0.1:{port}" for port in plan.ports),
        "spark.lakelog.token": os.environ[TOKEN],
        "spark.driver.memory": "512m",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        # In tasks, too, the code under test comes before the checkout.
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    with local_session(conf, master="local[1]") as spark:
        # The first task takes much longer than the others, so run it before this driver is needed.
        tasks.in_tasks(spark, [0], _idle, tier_tasks.TierResult)
        yield spark


def _idle(_: int) -> tier_tasks.TierResult:
    return tier_tasks.TierResult()


class _Unrecorded:
    """A record of a pipeline run that is not stored."""

    def update(self, progress: Mapping[str, int]) -> None: ...


@contextmanager
def _unelected(log: lakelog.Lakelog, pipeline: str, topic: str | None = None) -> Iterator[Any]:
    yield _Unrecorded()


def main(plan: bytes) -> None:
    # In production Spark has its own machines; here it gets the processor time that servers leave.
    os.nice(NICE)
    TieringDriver(msgspec.json.decode(plan, type=TieringPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
