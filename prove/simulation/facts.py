"""The facts of a run that simulated clients record: rows of the tables that the checks read, and a readable trace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lakelog.batches import decode, to_messages
from lakelog.errors import OutcomeForgotten
from lakelog.model.message import Message
from prove.history.lines import identity_of
from prove.history.recorder import REFUSALS
from prove.history.tables import TABLES, CallOutcome, TableColumns, Tables, text_id
from prove.simulation.database import SimulatedDatabase

Row = dict[str, Any]

_MINUS = frozenset({"partition", "offset", "asked_partition", "sequence", "first", "token"})
_EMPTY: dict[str, Row] = {
    name: {each: -1 if each in _MINUS else 0 for each in columns} for name, columns in TABLES.items()
}
for _row in _EMPTY.values():
    if "outcome" in _row:
        # The default: a call whose process dies has an unknown outcome.
        _row["outcome"] = int(CallOutcome.INFO)


_CALLS = ("attempt", "answer", "call", "read", "member")
_OBSERVED = ("delivery", "seen", "progress", "sample", "cut")
_PLACED = ("partition", "offset", "duplicate")
"""The columns of a response to a publish."""


hashed = lru_cache(maxsize=20_000)(text_id)
"""The cached `text_id`. The clients of all seeds have the same names and texts."""
identified = lru_cache(maxsize=20_000)(identity_of)


def outcome_of(error: BaseException) -> CallOutcome:
    """Return the outcome for an error.

    Only a definite refusal had no effect. A forgotten outcome may belong to an accepted ack.
    """
    is_refusal = isinstance(error, REFUSALS) and not isinstance(error, OutcomeForgotten)
    return CallOutcome.FAIL if is_refusal else CallOutcome.INFO


class Facts:
    """All rows of one run. With `traced`, also the trace lines."""

    def __init__(self, database: SimulatedDatabase, *, traced: bool = False) -> None:
        self._database = database
        self._loop = database.loop
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.names: dict[int, str] = {}
        self.trace: list[str] | None = [] if traced else None
        self._ids: dict[str, int] = {}
        self._decoded: dict[bytes, list[Message]] = {}
        self._lost_ns = -1
        """The time of the last failover. Responses to calls that began before it are not known."""
        if traced:
            database.log = self.say

    def id(self, text: str) -> int:
        """Return the number of a text, and remember the text."""
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = hashed(text)
            self.names[found] = text
        return found

    def now_ns(self) -> int:
        # One second more, because 0 is a time that never came.
        return int(self._loop.now * 1e9) + 1_000_000_000

    def database_ms(self) -> int:
        """Return the time of the database clock."""
        return self._database.now_ms()

    def is_in_reach(self) -> bool:
        """Return whether the database responds to every server without delay."""
        return not self._database.call_faults

    def row(self, table: str, **columns: Any) -> Row:
        row = {**_EMPTY[table], **columns}
        self.rows[table].append(row)
        return row

    def invoke(self, table: str, process: SimulatedProcess, **columns: Any) -> Row:
        """Record a call that begins now."""
        row = {**_EMPTY[table], "process": process.id, "counter": process.count(), "invoked_ns": self.now_ns()}
        if "invoked_wall_ms" in row:
            row["invoked_wall_ms"] = self._database.now_ms()
        row.update(columns)
        self.rows[table].append(row)
        return row

    def complete(self, row: Row, outcome: CallOutcome, **columns: Any) -> None:
        """Record the response to a call."""
        if row["invoked_ns"] <= self._lost_ns:
            outcome, columns = CallOutcome.INFO, {}
        row["outcome"] = int(outcome)
        row["completed_ns"] = self.now_ns()
        if "invoked_wall_ms" in row:
            row["completed_wall_ms"] = self._database.now_ms()
        row.update(columns)

    def lose(self, since_ns: int, tokens: Mapping[tuple[int, int], int]) -> None:
        """Forget all responses since a time: a failover may have lost their effects, so their outcome is unknown.

        Args:
            since_ns: The time from which on writes were lost.
            tokens: The last token by topic and partition. Leases up to it were not lost.
        """
        self._lost_ns = self.now_ns()
        for name in _CALLS:
            for row in self.rows[name]:
                if row["completed_ns"] >= since_ns:
                    row.update({each: _EMPTY[name][each] for each in (_PLACED if name == "attempt" else ())})
                    row["outcome"] = int(CallOutcome.INFO)
        for name in _OBSERVED:
            time = "at_ns" if "at_ns" in _EMPTY[name] else "completed_ns"
            self.rows[name] = [row for row in self.rows[name] if row[time] < since_ns or self._is_kept(row, tokens)]

    def _is_kept(self, row: Row, tokens: Mapping[tuple[int, int], int]) -> bool:
        """Return whether an observation is a message of a lease that was not lost."""
        place = (row["topic"], row.get("partition", -1))
        if "token" in row:
            return bool(0 <= row["token"] <= tokens.get(place, -1))
        return "hash" in row and any(
            (each["process"], each["counter"], each["topic"], each["partition"], each["offset"])
            == (row["process"], row["counter"], *place, row["offset"])
            for each in self.rows["delivery"]
        )

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._loop.time():12.6f} {text}")

    def messages(self, payload: bytes) -> list[Message]:
        """Return the messages of a batch, decoded once."""
        found = self._decoded.get(payload)
        if found is None:
            found = self._decoded[payload] = to_messages(decode(payload))
        return found

    def tables(self) -> Tables:
        return Tables(by_name={name: _columns(name, rows) for name, rows in self.rows.items() if rows})

    def digest(self) -> str:
        """Return a hash of all recorded facts, which is equal for equal runs."""
        found = hashlib.blake2b(digest_size=16)
        for name, rows in self.rows.items():
            found.update(name.encode())
            for row in rows:
                found.update(repr(list(row.values())).encode())
        for line in self.trace or ():
            found.update(line.encode())
        return found.hexdigest()


class SimulatedProcess:
    """One client process: a unique name, and its number of calls."""

    def __init__(self, facts: Facts, name: str) -> None:
        self.name = name
        self.id = facts.id(name)
        self._count = -1

    def count(self) -> int:
        self._count += 1
        return self._count


def _columns(name: str, rows: Sequence[Row]) -> TableColumns:
    """Return all columns in one array. For few rows, an array costs more than its content."""
    kinds = TABLES[name]
    numbers = np.array([[*row.values()] for row in rows], np.int64).T.copy()
    return TableColumns(
        name,
        {each: column.astype(kind, copy=False) for (each, kind), column in zip(kinds.items(), numbers, strict=True)},
    )
