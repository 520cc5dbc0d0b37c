"""The extract of a history that a report needs: counts by second, and the few rows for traces.

A run of a night has more rows than fit into memory. Each file is read once, and almost no rows are kept: calls that
were refused or have an unknown outcome, redeliveries after a lost owner, deliveries to victims of faults, the publishes
for L3 and L4, and all rows of the messages and calls that a counter-example names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prove.checker.invariant import RunInfo, Violation
from prove.checker.timing import SECOND
from prove.history import truth
from prove.history.file_reader import FileReader
from prove.history.loading import History, open_run
from prove.history.tables import CallOutcome, OwnerVerb, TableColumns, Tables, joined, text_id

Array = npt.NDArray[Any]
RETURNS = ("postgres killed", "postgres stopped and back")
"""The faults after which PostgreSQL returns, and L4 limits the time until it is used again."""
AFTER_RETURN_NS = 30 * SECOND
_WHOLE = ("member", "sample", "dead", "segment", "cut")
_CALLS = ("attempt", "read", "call", "answer")


@dataclass(frozen=True, kw_only=True)
class KeptRows:
    """The rows that are kept in addition to the usual rows."""

    victims: frozenset[str] = frozenset()
    violations: Sequence[Violation] = ()

    def chosen(self, rows: TableColumns) -> Array:
        """Return the rows about the messages and calls of counter-examples."""
        found = np.zeros(len(rows), np.bool_)
        for violation in self.violations:
            if violation.place is not None and "offset" in rows.arrays:
                topic, partition, offset = violation.place
                found |= (rows.offset == offset) & (rows.partition == partition) & (rows.topic == text_id(topic))
            for call in violation.calls if "counter" in rows.arrays else ():
                process, _, counter = call.rpartition("-")
                if counter.isdigit():
                    found |= (rows.counter == int(counter)) & (rows.process == text_id(process))
        return found


@dataclass(kw_only=True)
class Digest:
    """Collects all rows of a run, one part at a time."""

    run: RunInfo
    wanted: KeptRows = field(default_factory=KeptRows)
    counts: Counter[str] = field(default_factory=Counter)
    """The number of rows by table, and of messages by outcome."""
    by_second: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._kept: dict[str, list[TableColumns]] = {}
        self._victims = np.array([text_id(name) for name in self.wanted.victims], np.int64)
        end = self.run.drained_ns or self.run.load_ns[1]
        self._seconds = max(1, int((end - self.run.load_ns[0]) // SECOND) + 1)

    @property
    def tables(self) -> Tables:
        """Return the rows that were kept."""
        return Tables(by_name={name: joined(name, parts) for name, parts in self._kept.items()})

    def add(self, rows: TableColumns) -> None:
        self.counts[rows.name] += len(rows)
        self._count(rows)
        kept = rows if rows.name in _WHOLE else rows.where(self._usual(rows) | self.wanted.chosen(rows))
        if len(kept):
            self._kept.setdefault(rows.name, []).append(kept)

    def _count(self, rows: TableColumns) -> None:
        if rows.name == "attempt":
            ok = (rows.outcome == CallOutcome.OK) & ~rows.duplicate
            self.counts["acknowledged"] += int(ok.sum())
            self.counts["unknown"] += int((rows.outcome == CallOutcome.INFO).sum())
            self._tally("published", rows.completed_ns[ok])
        elif rows.name == "delivery":
            self.counts["suspect"] += int(rows.suspect.sum())
            self._tally("delivered", rows.completed_ns)
            self._tally("redelivered", rows.completed_ns[rows.number > 1])
        elif rows.name == "answer":
            self._tally("acked", rows.completed_ns[(rows.outcome == CallOutcome.OK) & (rows.verb == OwnerVerb.ACK)])

    def _tally(self, name: str, times: Array) -> None:
        at = (times[times >= self.run.load_ns[0]] - self.run.load_ns[0]) // SECOND
        counted = np.bincount(at[at < self._seconds], minlength=self._seconds)
        self.by_second[name] = self.by_second.get(name, 0) + counted

    def _usual(self, rows: TableColumns) -> Array:
        if rows.name == "delivery":
            lost: Array = rows.suspect | np.isin(rows.process, self._victims)
            return lost
        if rows.name not in _CALLS:
            return np.zeros(len(rows), np.bool_)
        kept: Array = rows.outcome != CallOutcome.OK
        if rows.name == "attempt":
            for began, ended in self._windows():
                kept = kept | ((rows.invoked_ns >= began) & (rows.invoked_ns < ended))
        return kept

    def _windows(self) -> Iterable[tuple[int, int]]:
        """Yield the intervals whose publishes are all kept: the drill, the time after it, and returns of PostgreSQL."""
        began = self.run.load_ns[0]
        if seconds := self.run.targets.get("drill_seconds", 0.0):
            yield began, began + int((seconds + 30) * SECOND)
        for fault in self.run.faults:
            if fault.kind in RETURNS:
                yield fault.ended_ns, fault.ended_ns + AFTER_RETURN_NS


def of_history(history: History, wanted: KeptRows) -> Digest:
    """Return the digest of a history in memory."""
    digest = Digest(run=history.run, wanted=wanted)
    for rows in history.tables.by_name.values():
        digest.add(rows)
    return digest


def of_folder(folder: Path, wanted: KeptRows) -> Digest:
    """Return the digest of a folder, without loading all of it."""
    source = open_run(folder)
    digest = Digest(run=source.run, wanted=wanted)
    names: dict[int, str] = dict(source.run.names)
    for path in source.files:
        reader = FileReader(path, crashed=path.stem in source.crashed)
        for rows in reader.chunks():
            digest.add(rows)
        names |= reader.names
    for part in source.parts:
        digest.add(truth.read_part(part))
    digest.run = RunInfo(**{**vars(source.run), "names": names})
    return digest
