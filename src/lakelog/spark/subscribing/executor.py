"""Runs the lanes of a round as one Spark job, whatever becomes of it.

A job whose processes are lost was made to fail by one of its messages, or by the cluster. If the cluster still runs a
job, the round is run again in halves, until the message stands alone: it has failed then, and the others have not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from lakelog.client import processes
from lakelog.client.worker.leased_message import clipped
from lakelog.errors import ConfigurationError, first_line
from lakelog.spark.subscribing import child_processes
from lakelog.spark.subscribing.handling import ChildEvent, HandlerOutcome, PickledHandler
from lakelog.spark.subscribing.rounds import (
    Rows,
    SlotReport,
    SparkRound,
    outcomes_of,
    read_report,
    report_of,
    slots_of,
    tasks_of,
    work_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = processes.log

_WORK = pa.schema([pa.field("lane", pa.int32()), pa.field("work", pa.binary())])
_REPORT = "lane int, report binary"
_TOLD = 500
_LOSSES = ("exited unexpectedly", "ExecutorLostFailure")


@dataclass(slots=True)
class RoundOutcome:
    """What became of each row of a round."""

    outcomes: dict[int, HandlerOutcome] = field(default_factory=dict)
    crashed: int = 0
    timed_out: int = 0

    def add(self, rows: Rows, report: SlotReport) -> None:
        self.outcomes.update(zip(rows.tolist(), outcomes_of(report), strict=True))
        self.crashed += report.crashed
        self.timed_out += report.timed_out


class RoundExecutor:
    """Runs rounds of one subscription; usable from several threads."""

    def __init__(self, spark: SparkSession, recipe: PickledHandler, lanes: int) -> None:
        self._spark = spark
        self._recipe = recipe
        self._lanes = lanes

    def run(self, found: SparkRound) -> RoundOutcome:
        """`ConfigurationError` if the handler cannot be loaded on executors; then no message has failed."""
        executed = RoundOutcome()
        self._run(found, np.arange(found.count), executed)
        return executed

    def _run(self, found: SparkRound, rows: Rows, executed: RoundOutcome) -> None:
        lanes = [rows[lane] for lane in slots_of(found.chains()[rows], self._lanes)]
        try:
            reports = self._job([work_of(found, lane) for lane in lanes])
        except Exception as error:
            if not is_loss(error) or not self._works():
                raise
            log.warning("a round of %d messages failed, and is run in parts: %s", len(rows), first_line(error, _TOLD))
            self._run_parts(found, rows, executed, error)
            return
        for lane, report in zip(lanes, reports, strict=True):
            if report.unusable is not None:
                raise ConfigurationError(report.unusable)
            executed.add(lane, report)

    def _run_parts(self, found: SparkRound, rows: Rows, executed: RoundOutcome, error: Exception) -> None:
        if len(rows) == 1:
            reason = clipped(f"crash: the executor's process was lost with it: {first_line(error, _TOLD)}")
            executed.outcomes[int(rows[0])] = HandlerOutcome(ChildEvent.NACK, reason)
            executed.crashed += 1
            return
        chains = found.chains()
        for part in halves(chains[rows]):
            # What is behind a message of its key that has failed meanwhile goes back.
            blocked = {
                chains[row]
                for row, each in executed.outcomes.items()
                if each.said in (ChildEvent.NACK, ChildEvent.FAIL)
            }
            left = [row for row in rows[part].tolist() if chains[row] not in blocked]
            executed.outcomes.update(
                (row, HandlerOutcome(ChildEvent.RELEASE)) for row in rows[part].tolist() if chains[row] in blocked
            )
            if left:
                self._run(found, np.array(left, np.int64), executed)

    def _job(self, works: Sequence[bytes]) -> list[SlotReport]:
        # A chunk for each lane: in one partition each where Spark makes partitions of chunks, and spread evenly over
        # the cores where it makes rows of them.
        rows = [{"lane": lane, "work": work} for lane, work in enumerate(works)]
        table = pa.Table.from_batches([pa.RecordBatch.from_pylist([row], schema=_WORK) for row in rows])
        done = self._spark.createDataFrame(table).mapInArrow(runner(self._recipe), _REPORT).collect()
        reports = {row["lane"]: read_report(bytes(row["report"])) for row in done}
        return [reports[lane] for lane in range(len(works))]

    def _works(self) -> bool:
        """Whether the cluster runs jobs: then the last one failed by what was in it."""
        try:
            return bool(self._spark.range(1).count() == 1)
        except Exception:
            return False


def is_loss(error: Exception) -> bool:
    """Whether processes of executors were lost; any other failure is no message's fault, and ends the subscription."""
    return any(sign in str(error) for sign in _LOSSES)


def halves(chains: Rows) -> tuple[Rows, Rows]:
    """Two parts that together are all, none empty; a chain is in one of them, unless it is the only one."""
    names = np.unique(chains)
    if len(names) == 1:
        return np.arange(1), np.arange(1, len(chains))
    first = np.isin(chains, names[: len(names) // 2])
    return np.flatnonzero(first), np.flatnonzero(~first)


def runner(recipe: PickledHandler) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task runs: all lanes that it got beside one another, each in a child of its own."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
        if not rows:
            return
        try:
            results = child_processes.run_slots([tasks_of(row["work"]) for row in rows], recipe)
            reports = [report_of(each.outcomes, each.crashed, each.timed_out) for each in results]
        except ConfigurationError as error:
            reports = [msgspec.msgpack.encode(SlotReport(unusable=error.detail))] * len(rows)
        columns = [pa.array([row["lane"] for row in rows], pa.int32()), pa.array(reports, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["lane", "report"])

    return run
