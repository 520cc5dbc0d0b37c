"""Runs the slots of a round as one Spark job, and handles the failure of the job.

If executor processes are lost, either a message or the cluster caused it. If the cluster still runs other jobs, the
round is split in halves until the message is isolated: that message has failed, and the others have not.
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
from lakelog.spark.subscribing.handling import ChildEvent, HandlerOutcome, PickledHandler, SlotResult
from lakelog.spark.subscribing.rounds import Rows, SparkRound, slots_of, tasks_of, work_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = processes.log

_WORK = pa.schema([pa.field("slot", pa.int32()), pa.field("work", pa.binary())])
_REPORT = "slot int, report binary"
_TOLD = 500
_decode = msgspec.msgpack.Decoder(SlotResult).decode
_LOSSES = ("exited unexpectedly", "ExecutorLostFailure")


@dataclass(slots=True)
class RoundOutcome:
    """The outcome of each row of a round."""

    outcomes: dict[int, HandlerOutcome] = field(default_factory=dict)
    crashed: int = 0
    timed_out: int = 0

    def add(self, rows: Rows, result: SlotResult) -> None:
        self.outcomes.update(zip(rows.tolist(), result.outcomes, strict=True))
        self.crashed += result.crashed
        self.timed_out += result.timed_out


class RoundExecutor:
    """Runs the rounds of one subscription; safe to use from several threads."""

    def __init__(self, spark: SparkSession, pickled: PickledHandler, slots: int) -> None:
        self._spark = spark
        self._pickled = pickled
        self._slots = slots

    def run(self, found: SparkRound) -> RoundOutcome:
        """Run a round. If the handler cannot be loaded on executors, raise `ConfigurationError` and fail no message."""
        executed = RoundOutcome()
        self._run(found, np.arange(found.count), executed)
        return executed

    def _run(self, found: SparkRound, rows: Rows, executed: RoundOutcome) -> None:
        slots = [rows[slot] for slot in slots_of(found.chains()[rows], self._slots)]
        try:
            results = self._job([work_of(found, slot) for slot in slots])
        except Exception as error:
            if not is_loss(error) or not self._works():
                raise
            log.warning("a round of %d messages failed, and will run in parts: %s", len(rows), first_line(error, _TOLD))
            self._run_parts(found, rows, executed, error)
            return
        for slot, result in zip(slots, results, strict=True):
            if result.unusable is not None:
                raise ConfigurationError(result.unusable)
            executed.add(slot, result)

    def _run_parts(self, found: SparkRound, rows: Rows, executed: RoundOutcome, error: Exception) -> None:
        if len(rows) == 1:
            reason = clipped(f"crash: the executor's process was lost: {first_line(error, _TOLD)}")
            executed.outcomes[int(rows[0])] = HandlerOutcome(ChildEvent.NACK, reason)
            executed.crashed += 1
            return
        chains = found.chains()
        for part in halves(chains[rows]):
            # Messages that follow a failed message of the same key are released.
            blocked = {
                chains[row]
                for row, each in executed.outcomes.items()
                if each.event in (ChildEvent.NACK, ChildEvent.FAIL)
            }
            left = [row for row in rows[part].tolist() if chains[row] not in blocked]
            executed.outcomes.update(
                (row, HandlerOutcome(ChildEvent.RELEASE)) for row in rows[part].tolist() if chains[row] in blocked
            )
            if left:
                self._run(found, np.array(left, np.int64), executed)

    def _job(self, works: Sequence[bytes]) -> list[SlotResult]:
        # One chunk per slot: Spark makes each chunk a partition, or spreads the rows evenly over the cores.
        rows = [{"slot": slot, "work": work} for slot, work in enumerate(works)]
        table = pa.Table.from_batches([pa.RecordBatch.from_pylist([row], schema=_WORK) for row in rows])
        done = self._spark.createDataFrame(table).mapInArrow(runner(self._pickled), _REPORT).collect()
        reports = {row["slot"]: _decode(bytes(row["report"])) for row in done}
        return [reports[slot] for slot in range(len(works))]

    def _works(self) -> bool:
        """Return whether the cluster runs jobs; if it does, the content of the last job made it fail."""
        try:
            return bool(self._spark.range(1).count() == 1)
        except Exception:
            return False


def is_loss(error: Exception) -> bool:
    """Return whether executor processes were lost.

    Any other failure is not caused by a message and ends the subscription.
    """
    return any(sign in str(error) for sign in _LOSSES)


def halves(chains: Rows) -> tuple[Rows, Rows]:
    """Return two non-empty parts of the rows. A chain is in one part, unless it is the only chain."""
    names = np.unique(chains)
    if len(names) == 1:
        return np.arange(1), np.arange(1, len(chains))
    first = np.isin(chains, names[: len(names) // 2])
    return np.flatnonzero(first), np.flatnonzero(~first)


def runner(pickled: PickledHandler) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a Spark task, which runs its slots in parallel, each in its own child."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
        if not rows:
            return
        try:
            results = child_processes.run_slots([tasks_of(row["work"]) for row in rows], pickled)
        except ConfigurationError as error:
            results = [SlotResult(unusable=error.detail)] * len(rows)
        reports = [msgspec.msgpack.encode(result) for result in results]
        columns = [pa.array([row["slot"] for row in rows], pa.int32()), pa.array(reports, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["slot", "report"])

    return run
