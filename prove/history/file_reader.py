"""Reads the history file of one process into columns, and reports what is missing or damaged.

It reads up to the first damage and keeps only the calls in progress in memory, so a file may have any length.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prove.history.lines import Line
from prove.history.rows import Row, rows_of
from prove.history.tables import TABLES, TableColumns, columns, text_id

CHUNK = 65_536
"""The number of rows of a table that are returned together."""
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    name: {each: int(values[0]) for each, values in columns(name, [{}]).arrays.items()} for name in TABLES
}
_DAMAGE = (ValueError, OverflowError, msgspec.DecodeError)


class FileReader:
    """Reads one file. `cut` and `names` are complete when `chunks` has ended."""

    def __init__(self, path: Path, *, crashed: bool) -> None:
        self._path, self._crashed = path, crashed
        self._tables: dict[str, _GrowingTable] = {}
        self._pending: dict[int, _Pending] = {}
        self._ids: dict[str, int] = {}
        self._after = 0
        self.cut: list[str] = []

    @property
    def names(self) -> dict[int, str]:
        """Return the texts of topics, groups, owners and processes in the file."""
        return {number: text for text, number in self._ids.items() if text}

    def chunks(self) -> Iterator[TableColumns]:
        """Yield the rows of all tables, in no particular order."""
        decoder = msgspec.json.Decoder(Line)
        ended = False
        number = -1
        with self._path.open("rb") as lines:
            for number, raw in enumerate(lines):
                try:
                    if not raw.endswith(b"\n") and self._crashed and not ended:
                        # A kill may truncate the last write. A call whose invoke line is missing was not made.
                        break
                    if ended or not raw.endswith(b"\n"):
                        raise ValueError("more after the end" if ended else "the line is torn")
                    ended = self._take(number, decoder.decode(raw))
                except _DAMAGE as exc:
                    self.cut.append(f"{self._path.name}, line {number + 1}: {exc}")
                    break
                yield from self._full(CHUNK)
        if not ended and not self._crashed and not self.cut:
            self.cut.append(f"{self._path.name}: the end line is missing")
        self._give_up()
        yield from self._full(1)

    def _take(self, number: int, line: Line) -> bool:
        if line.line != number or line.process != self._path.stem:
            raise ValueError(f"found line {line.line} of {line.process}")
        if line.kind == "end":
            # The end line is written by an orderly close, when no call can be in progress.
            if self._pending:
                raise ValueError("calls without an outcome before the end")
            return True
        if line.kind in ("invoke", "note"):
            self._begun(line)
        else:
            self._ended(line)
        return False

    def _begun(self, line: Line) -> None:
        # Threads take their counters before they write, so counters rise, but not from line to line.
        count = len(line.hashes) if line.op == "publish" else 1
        if not count or not line.op or line.counter in self._pending:
            raise ValueError(f"{line.kind} of {line.op or 'nothing'} {line.counter} is out of place")
        if line.kind == "note":
            self._add(line, line, (line.counter, line.counter + 1))
        else:
            self._pending[line.counter] = _Pending(line, line.counter + count)

    def _ended(self, line: Line) -> None:
        call = line.counter if line.batch is None else line.batch
        pending = self._pending.get(call)
        if pending is None or pending.next != line.counter:
            raise ValueError(f"{line.kind} of operation {line.counter} is out of place")
        end = pending.end if line.count is None else line.counter + line.count
        if not line.counter < end <= pending.end:
            raise ValueError(f"{line.kind} of operation {line.counter} is about {line.count} messages")
        self._add(pending.invoke, line, (line.counter, end))
        pending.next = end
        if end == pending.end:
            del self._pending[call]

    def _give_up(self) -> None:
        """Add the calls that are still in progress with an unknown outcome."""
        for pending in self._pending.values():
            try:
                self._add(pending.invoke, None, (pending.next, pending.end))
            except _DAMAGE as exc:
                self.cut = self.cut or [f"{self._path.name}, line {pending.invoke.line + 1}: {exc}"]

    def _add(self, invoke: Line, outcome: Line | None, counters: tuple[int, int]) -> None:
        for name, count, row in rows_of(invoke, outcome, counters, self._id):
            table = self._tables.get(name)
            if table is None:
                table = self._tables[name] = _GrowingTable(name)
            table.add(count, row)

    def _id(self, text: str) -> int:
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = text_id(text) if text else 0
        return found

    def _full(self, size: int) -> Iterator[TableColumns]:
        for table in self._tables.values():
            if table.rows >= size:
                yield table.taken()


class _Pending:
    """A call whose outcome is not known yet for the message `next` and later ones."""

    __slots__ = ("end", "invoke", "next")

    def __init__(self, invoke: Line, end: int) -> None:
        self.invoke, self.next, self.end = invoke, invoke.counter, end


class _GrowingTable:
    """A table to which calls add rows. Each column is an array with 8 bytes per number."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._defaults = _DEFAULTS[name]
        self._columns = {each: array("q") for each in TABLES[name]}
        self.rows = 0

    def add(self, count: int, row: Row) -> None:
        """Add rows.

        `row` has single numbers that hold for all rows, and sequences of `count` numbers. On an error nothing is added.
        """
        added = [_numbers(row.get(name, self._defaults[name]), count, name) for name in self._columns]
        for column, numbers in zip(self._columns.values(), added, strict=True):
            column.extend(numbers)
        self.rows += count

    def taken(self) -> TableColumns:
        """Return the rows so far and start again with none."""
        done, self._columns = self._columns, {name: array("q") for name in self._columns}
        self.rows = 0
        types = TABLES[self._name]
        return TableColumns(self._name, {name: _numpy(done[name], kind) for name, kind in types.items()})


def _numbers(told: int | Sequence[int], count: int, name: str) -> array[int]:
    if isinstance(told, int):
        return array("q", (told,)) * count
    if len(told) != count:
        raise ValueError(f"{len(told)} numbers of '{name}' for {count} messages")
    return array("q", told)


def _numpy(numbers: array[int], kind: type) -> npt.NDArray[Any]:
    return np.frombuffer(numbers, np.int64).astype(kind, copy=False)
