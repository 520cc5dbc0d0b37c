"""Generates a large and valid history without a run, to measure how long judging takes.

Each partition is a small simulation with its own clock: batches are published, leased and acked; a few messages are
given back, a few leases expire, and a few calls have an unknown outcome. There are no faults.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lakelog.model.group import Fixed
from prove.checker.invariant import GroupRules, RunInfo
from prove.history.lines import Got, LeaseSeen, Line, ProgressSeen, identity_of
from prove.history.loading import HISTORY, save_run, write_truth
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.history.tables import ReaderKind, TableColumns, columns, text_id

TOPIC, GROUP = "made", "workers"
ROWS_OF_A_MESSAGE = 5
"""The number of rows per message: an attempt, a delivery with its observation, an answer, and a row of the final
read.
"""
_BATCH, _LEASE_MS, _RETRY_MS = 100, 5000, 1000
_MS = 1_000_000
_WALL_MS = 1_700_000_000_000
_BEGAN_NS = 1_000_000_000


@dataclass(frozen=True, order=True)
class Back:
    """A message that is delivered again when it is due."""

    due_ns: int
    offset: int
    number: int = field(compare=False)
    failures: int = field(compare=False)


class SyntheticPartition:
    """One partition with its producers, its owners and one reader."""

    def __init__(self, folder: Path, number: int) -> None:
        self._number = number
        self._now_ns = _BEGAN_NS
        self._producers = [self._recorder(folder, f"p{number}-{each}") for each in range(2)]
        self._owners = [self._recorder(folder, f"w{number}-{each}") for each in range(3)]
        self._reader = self._recorder(folder, f"r{number}")
        self._hashes: list[int] = []
        self._keys: list[int] = []
        self._identities: list[int] = []
        self._read = self._token = self._acked = 0
        self._waiting: list[Back] = []
        self._turn = 0

    @property
    def processes(self) -> list[str]:
        return [each.process for each in (*self._producers, *self._owners, self._reader)]

    def run(self, messages: int) -> int:
        """Publish this many messages, drain, and return the time of the end."""
        while len(self._hashes) < messages:
            self._turn += 1
            first = len(self._hashes)
            self._publish()
            self._lease([Got(at, 1, 0, self._hashes[at], self._keys[at]) for at in range(first, len(self._hashes))])
            self._take_back()
            if self._turn % 20 == 0:
                self._read_along()
            if self._turn % 50 == 0:
                self._record_progress()
        while self._waiting:
            self._now_ns = max(self._now_ns, self._waiting[0].due_ns)
            self._take_back()
        self._read_along()
        self._record_progress()
        for recorder in (*self._producers, *self._owners, self._reader):
            recorder.close()
        return self._now_ns

    # Clients ----------------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        recorder = self._producers[self._turn % len(self._producers)]
        attempts = [self._attempt(recorder, number) for number in range(_BATCH)]
        first = len(self._hashes)
        places = [PublishedAt(partition=self._number, offset=first + at) for at in range(_BATCH)]
        self._hashes += [text_id(each.value) for each in attempts]
        self._keys += [text_id(each.key) for each in attempts]
        self._identities += [identity_of(each.idempotency_key) for each in attempts]
        if self._turn % 50 == 0:
            with recorder.publish(*attempts) as call:
                self._pass(2)
                call.info("the response was lost")
            places = [PublishedAt(partition=each.partition, offset=each.offset, duplicate=True) for each in places]
        if self._turn % 70 == 0:
            with recorder.publish(self._attempt(recorder, -1)) as call:
                call.info("it never arrived")
        with recorder.publish(*attempts) as call:
            self._pass(2)
            call.ok(*places)
        self._pass(1)

    def _attempt(self, recorder: HistoryRecorder, number: int) -> Attempt:
        value = recorder.value()
        # Every second message has a frequent key; only the others are ever given back.
        key = f"k{number}" if number % 2 else None
        return Attempt(topic=TOPIC, value=value, key=key, idempotency_key=value.decode())

    def _lease(self, got: list[Got], *, suspect: bool = False) -> None:
        owner = self._owners[self._turn % len(self._owners)]
        first = owner.invoke(self._line(owner, op="consume", lease_ms=_LEASE_MS))
        self._pass(1)
        self._token += 1
        expires_ms = self._wall_ms() + _LEASE_MS
        lease = LeaseSeen(self._number, self._token, expires_ms, suspect, tuple(got))
        owner.complete(first, Line(kind="ok", leases=(lease,)))
        self._pass(1)
        self._answer(owner, got)

    def _answer(self, owner: HistoryRecorder, got: list[Got]) -> None:
        whole = len(got) == _BATCH
        returned = got[10].offset if whole and self._turn % 5 == 0 else None
        forgotten = got[20].offset if whole and self._turn % 11 == 0 else None
        offsets = [each.offset for each in got if each.offset not in (returned, forgotten)]
        said = {"partition": self._number, "token": self._token}
        lines = [self._line(owner, op="ack", offsets=tuple(offsets), **said)]
        if returned is not None:
            lines.append(self._line(owner, op="nack", offsets=(returned,), **said))
            due_ns = self._now_ns + (_RETRY_MS + 20) * _MS
            heapq.heappush(self._waiting, Back(due_ns, returned, 2, 1))
        if forgotten is not None:
            due_ns = self._now_ns + (_LEASE_MS + 20) * _MS
            heapq.heappush(self._waiting, Back(due_ns, forgotten, 2, 0))
        first = owner.invoke(*lines)
        self._pass(1)
        lost = len(lines) == 1 and self._turn % 40 == 0
        owner.complete(first, *[Line(kind="info" if lost else "ok") for _ in lines])
        self._acked += len(offsets)
        self._pass(1)

    def _take_back(self) -> None:
        while self._waiting and self._waiting[0].due_ns <= self._now_ns:
            back = heapq.heappop(self._waiting)
            got = Got(back.offset, back.number, back.failures, self._hashes[back.offset], self._keys[back.offset])
            self._lease([got], suspect=back.failures == 0)

    def _read_along(self) -> None:
        end = len(self._hashes)
        with self._reader.fetch(TOPIC, self._number, self._read) as call:
            self._pass(1)
            read = range(self._read, end)
            call.saw(read, self._hashes[self._read :], keys=self._keys[self._read :], bounds=(0, end))
        self._read = end

    def _record_progress(self) -> None:
        first = self._reader.invoke(self._line(self._reader, op="progress"))
        self._pass(1)
        self._reader.complete(first, Line(kind="ok", progress=(self._progress(),)))

    def _progress(self) -> ProgressSeen:
        end = len(self._hashes)
        nacked = sum(1 for each in self._waiting if each.failures)
        return ProgressSeen(
            partition=self._number, epoch=0, start=0, committed=min([end, *(each.offset for each in self._waiting)]),
            frontier=end, high_watermark=end, acked=self._acked, waiting=nacked, leased=len(self._waiting) - nacked,
        )  # fmt: skip

    # Final state ------------------------------------------------------------------------------------------------------

    def truth(self) -> list[TableColumns]:
        end = len(self._hashes)
        read = {
            "topic": text_id(TOPIC), "partition": self._number, "offset": 0, "first": 0, "count": end, "log_start": 0,
            "high_watermark": end, "reader": ReaderKind.FINAL, "invoked_ns": self._now_ns, "completed_ns": self._now_ns,
        }  # fmt: skip
        told = self._progress()
        progress = {name: getattr(told, name) for name in told.__struct_fields__}
        who = {"topic": text_id(TOPIC), "group": text_id(GROUP), "final": True}
        when = {"invoked_ns": self._now_ns, "completed_ns": self._now_ns}
        return [self._seen(), columns("read", [read]), columns("progress", [{**progress, **who, **when}])]

    def _seen(self) -> TableColumns:
        end = len(self._hashes)
        some = columns("seen", [{"topic": text_id(TOPIC), "partition": self._number, "reader": ReaderKind.FINAL}])
        arrays = {name: np.repeat(array, end) for name, array in some.arrays.items()}
        arrays["offset"] = np.arange(end)
        arrays["completed_ns"] = np.full(end, self._now_ns)
        for name, numbers in (("hash", self._hashes), ("key", self._keys), ("identity", self._identities)):
            arrays[name] = np.array(numbers, np.int64)
        return TableColumns("seen", arrays)

    # Time -------------------------------------------------------------------------------------------------------------

    def _recorder(self, folder: Path, name: str) -> HistoryRecorder:
        return HistoryRecorder(folder, name, clock=lambda: self._now_ns, wall=lambda: self._wall_ms() * _MS)

    def _wall_ms(self) -> int:
        return _WALL_MS + self._now_ns // _MS

    def _pass(self, milliseconds: int) -> None:
        self._now_ns += milliseconds * _MS

    def _line(self, owner: HistoryRecorder, **more: object) -> Line:
        return Line(kind="invoke", topic=TOPIC, group=GROUP, owner=owner.process, **more)  # type: ignore[arg-type]


def make_partition(folder: Path, number: int, messages: int) -> tuple[list[str], int]:
    """Write the history of one partition. Return its processes and the time when it was drained."""
    partition = SyntheticPartition(folder / HISTORY, number)
    drained_ns = partition.run(messages)
    for table in partition.truth():
        write_truth(folder, table)
    return partition.processes, drained_ns


def describe(folder: Path, processes: list[str], drained_ns: int) -> None:
    """Write run.json after all partitions are written."""
    rules = GroupRules(retries=Fixed(max=3, seconds=_RETRY_MS / 1000))
    run = RunInfo(
        names={text_id(name): name for name in (TOPIC, GROUP)},
        rules={(text_id(TOPIC), text_id(GROUP)): rules},
        load_ns=(_BEGAN_NS, drained_ns),
        healed_ns=drained_ns,
        drained_ns=drained_ns,
    )
    save_run(folder, run, processes=processes)
