"""The columns of a history: one table per kind of fact, all of numbers, so that checks are array arithmetic.

Texts (topics, groups, owners, processes, keys, values) are 64-bit hashes, 0 for none; `RunInfo.names` has the texts
that reports show. An unknown number is -1, and a time that never came is 0. The loader fills the tables from the
files; the checks only read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt


def text_id(text: str | bytes | None) -> int:
    """Return the hash of a text; 0 for None."""
    if text is None:
        return 0
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True) or 1


class CallOutcome(IntEnum):
    """The outcome of a call. Only a definite refusal is FAIL; after any other error the call may have taken effect."""

    OK = 0
    FAIL = 1
    INFO = 2


class ReaderKind(IntEnum):
    """The kind of reader that observed a message or the ends of a log."""

    FINAL = 0
    """The complete read after the drain."""
    FETCH = 1
    DELIVERY = 2
    REPLAY = 3
    SPARK = 4
    COLD = 5
    """The read of the files at the end, by an independent reader."""


class OwnerVerb(IntEnum):
    """The verb of an owner's call."""

    ACK = 0
    NACK = 1
    RELEASE = 2
    FAIL = 3
    DISCARD = 4
    EXTEND = 5
    CONSUME = 6
    SEEK = 7


class MemberEvent(IntEnum):
    """A member's request or assignment. The generation of a row is the one in the response, or in the call.

    A member consumes with its own id as the owner, so `call` shows when it waited in a long poll.
    """

    JOIN = 0
    LEAVE = 1
    ASSIGNED = 2
    """The partition is assigned to the member in that generation. A row is recorded for each response, or only for
    each change.
    """
    REVOKED = 3
    """The member learned that it no longer owns the partition, or that it is no longer a member."""
    COMMIT = 4
    """A commit of a position that names the generation."""
    CONSUME = 5
    """A consume that names the generation. Its partition is -1."""


_CALL = {
    "process": np.int64,
    "counter": np.int64,
    "outcome": np.int8,
    "invoked_ns": np.int64,
    "completed_ns": np.int64,
}
"""Columns of every call: its process, its number, and its times on the machine's monotonic clock."""
_WALL = {"invoked_wall_ms": np.int64, "completed_wall_ms": np.int64}
"""Columns with times of the wall clock, which the database also uses."""
_PLACE = {"topic": np.int64, "partition": np.int32, "offset": np.int64}

TABLES: Mapping[str, Mapping[str, type]] = {
    # One message of a publish. `identity` is its idempotency key, or its producer and sequence. `shared` (set by the
    # loader): another attempt in its topic has the same identity or the same value, so the message in the log may
    # result from the other attempt.
    "attempt": {
        **_CALL, **_PLACE, "hash": np.int64, "key": np.int64, "identity": np.int64, "asked_partition": np.int32,
        "producer": np.int64, "sequence": np.int64, "batch": np.int64, "duplicate": np.bool_,
        "shared": np.bool_,
    },
    # One message as a reader observed it.
    "seen": {**_PLACE, "hash": np.int64, "key": np.int64, "identity": np.int64, "reader": np.int8, "group": np.int64,
             "process": np.int64, "counter": np.int64, "completed_ns": np.int64},
    # One fetch or complete read of a partition: `offset` was requested, `first` and `count` were returned.
    "read": {**_CALL, **_PLACE, "reader": np.int8, "first": np.int64, "count": np.int64,
             "log_start": np.int64, "high_watermark": np.int64},
    # One message of a lease. `together` is the number of messages in the same response.
    "delivery": {
        **_CALL, **_WALL, **_PLACE, "group": np.int64, "owner": np.int64, "token": np.int64, "number": np.int32,
        "failures": np.int32, "expires_ms": np.int64, "lease_ms": np.int64, "suspect": np.bool_, "together": np.int32,
    },
    # One message of an answer. EXTEND has offset -1 and applies to the whole lease. `dead`: it became a dead letter.
    "answer": {
        **_CALL, **_WALL, **_PLACE, "group": np.int64, "owner": np.int64, "token": np.int64, "verb": np.int8,
        "delay_ms": np.int64, "expires_ms": np.int64, "dead": np.bool_,
    },
    # A consume or a seek. A consume of unknown outcome may have leased messages without a record.
    "call": {**_CALL, **_WALL, "topic": np.int64, "partition": np.int32, "group": np.int64, "owner": np.int64,
             "verb": np.int8},
    # The progress of a group; `final` marks the sample after the drain.
    "progress": {
        **_CALL, "topic": np.int64, "partition": np.int32, "group": np.int64, "final": np.bool_, "epoch": np.int64,
        "start": np.int64, "committed": np.int64, "frontier": np.int64, "high_watermark": np.int64,
        "leased": np.int64, "waiting": np.int64, "skipped": np.int64, "acked": np.int64, "dead": np.int64,
        "discarded": np.int64, "filtered": np.int64, "expired": np.int64, "cut": np.int64,
    },
    # A dead letter at the end. `redriven` counts its redrives; `copy_*` is the target of the last one.
    "dead": {**_PLACE, "group": np.int64, "failures": np.int32, "deliveries": np.int32, "hash": np.int64,
             "key": np.int64, "redriven": np.int32, "copy_topic": np.int64, "copy_partition": np.int32,
             "copy_offset": np.int64, "copy_hash": np.int64},
    # Membership of a group. `offset` is the position of a commit, if its client recorded it.
    "member": {**_CALL, **_PLACE, "group": np.int64, "member": np.int64, "generation": np.int64, "event": np.int8},
    # A sealed segment, from the catalog and from an independent reader of its file. `exists` 0: the file is missing.
    "segment": {"topic": np.int64, "partition": np.int32, "first": np.int64, "end": np.int64, "rows": np.int64,
                "sealed_hash": np.int64, "read_hash": np.int64, "read_rows": np.int64, "live": np.bool_,
                "exists": np.bool_},
    # The messages that retention cut from a partition, up to `end`, and when; and how many of them the group had not
    # finished.
    "cut": {"topic": np.int64, "partition": np.int32, "group": np.int64, "first": np.int64, "end": np.int64,
            "unfinished": np.int64, "youngest_ms": np.int64, "horizon_ms": np.int64, "at_ns": np.int64},
    # A reported figure with its true value: lag, oldest age, memory, a wait. See `SampleKind`.
    "sample": {"kind": np.int8, "topic": np.int64, "group": np.int64, "process": np.int64, "at_ns": np.int64,
               "told": np.int64, "truth": np.int64, "stale": np.bool_},
}  # fmt: skip


class SampleKind(IntEnum):
    """Kinds of samples."""

    LAG = 0
    """The lag of a group in messages: `told` is the reported lag, `truth` the true lag."""
    OLDEST_AGE_MS = 1
    MEMORY = 2
    """Memory of a server in bytes: `told` is its use, `truth` its limit."""
    SERVING = 3
    """A return of PostgreSQL: `told` is the time in milliseconds until the first successful publish."""
    OVERLOAD = 4
    """A response of 429 or 503: `told` is 1 with Retry-After, 0 without."""
    CANARY = 5
    """A search for texts of another project: `told` is 1 if one was found."""
    REBALANCES = 6
    """Rebalances: `told` is the number that the group reports."""
    DRIVER = 7
    """A start of a tiering driver: `told` is 1 if it replaces a killed driver."""
    TIERING = 8
    """A tiering pass: `told` is the number of segments that it found begun, taken or damaged, `truth` the number
    that it wrote. `stale` means that the pass failed.
    """
    REPEAT = 9
    """A consume repeated with its request id: `told` is the number of messages of the first leases that it
    returned, `truth` the number that were still leased.
    """
    BESIDE = 10
    """A call while another group or partition is slow or impossible to read: `told` is its duration in
    milliseconds, or the number of stuck partitions, and `truth` is the limit. `stale` means that the call failed.
    """
    LIMITED = 11
    """A hostile tenant: `told` is the number of its calls and connections that limits refused or ended, `truth` the
    number that it made.
    """


class TableColumns:
    """One table: one array per column (`table.offset` and so on), all of one length."""

    def __init__(self, name: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.name = name
        self.arrays = dict(arrays)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        try:
            column: npt.NDArray[Any] = self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None
        # Cache the column, so that the next access does not come here.
        self.__dict__[name] = column
        return column

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def where(self, chosen: npt.NDArray[np.generic]) -> TableColumns:
        """Return the rows of a mask or of indices."""
        return _Chosen(self, chosen)

    def sorted_by(self, *names: str) -> TableColumns:
        """Return the rows sorted by the first name, then the next; stable."""
        return self.where(np.lexsort([getattr(self, name) for name in reversed(names)]))


class _Chosen(TableColumns):
    """Selected rows of a table. A column is extracted on first use, because most checks need four of fifteen."""

    def __init__(self, table: TableColumns, rows: npt.NDArray[Any]) -> None:
        self.name = table.name
        self._table = table
        self._rows: npt.NDArray[Any] = rows.nonzero()[0] if rows.dtype == np.bool_ else rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "arrays":
            found: Any = {each: getattr(self, each) for each in self._table.arrays}
        else:
            found = getattr(self._table, name)[self._rows]
        self.__dict__[name] = found
        return found

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, chosen: npt.NDArray[Any]) -> TableColumns:
        rows = chosen.nonzero()[0] if chosen.dtype == np.bool_ else chosen
        return _Chosen(self._table, self._rows[rows])


def columns(name: str, rows: Iterable[Mapping[str, object]] = ()) -> TableColumns:
    """Return a table of rows. Missing columns are -1 for positions and 0 otherwise."""
    types = TABLES[name]
    found = list(rows)
    for row in found:
        if unknown := row.keys() - types.keys():
            raise ValueError(f"'{name}' has no column {', '.join(sorted(unknown))}")
    return TableColumns(
        name,
        {each: np.array([row.get(each, _MISSING.get(each, 0)) for row in found], kind) for each, kind in types.items()},
    )


_MISSING = {"partition": -1, "offset": -1, "asked_partition": -1, "sequence": -1, "first": -1, "token": -1}


def joined(name: str, parts: Iterable[TableColumns]) -> TableColumns:
    """Return several tables of one name as one table."""
    found = [part for part in parts if len(part)]
    if not found:
        return columns(name)
    return TableColumns(name, {each: np.concatenate([getattr(part, each) for part in found]) for each in TABLES[name]})


@dataclass(frozen=True, kw_only=True)
class Tables:
    """All facts of one scope by the names of `TABLES`. A missing table is empty."""

    by_name: Mapping[str, TableColumns]

    def __getitem__(self, name: str) -> TableColumns:
        return self.by_name.get(name) or _empty(name)


@cache
def _empty(name: str) -> TableColumns:
    return columns(name)
