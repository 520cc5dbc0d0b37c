"""The columns of a history: one table for each kind of fact, all of numbers, so that a check is array arithmetic.

Texts (topics, groups, owners, processes, keys, values) are 64-bit hashes of themselves, 0 for none; `Run.names` knows
those that a person wants to read. A number that is not known is -1, a time that never came 0. The loader fills the
tables from the files; the checks only read them.
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
    """A text as a number; None is 0."""
    if text is None:
        return 0
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True) or 1


class CallOutcome(IntEnum):
    """What the caller was told. Only a definite refusal of ours is FAIL; whatever else went wrong may have happened."""

    OK = 0
    FAIL = 1
    INFO = 2


class ReaderKind(IntEnum):
    """Who saw a message, or the ends of a log."""

    FINAL = 0
    """The whole read after the drain."""
    FETCH = 1
    DELIVERY = 2
    REPLAY = 3
    SPARK = 4
    COLD = 5
    """An independent reader of the files, at the end."""


class OwnerVerb(IntEnum):
    """What an owner says about a message it holds, or asks for."""

    ACK = 0
    NACK = 1
    RELEASE = 2
    FAIL = 3
    DISCARD = 4
    EXTEND = 5
    CONSUME = 6
    SEEK = 7


class MemberEvent(IntEnum):
    """What a member asked for, or was given. A row's generation is the one that the answer, or the call, names.

    A member consumes under its own id as the owner, so that `call` says when it waited in a long poll.
    """

    JOIN = 0
    LEAVE = 1
    ASSIGNED = 2
    """An answer of that generation says that it owns the partition; a row for each answer, or only for what is new."""
    REVOKED = 3
    """An answer says that it does not any more, or it has heard that it is no member: one row when it hears it."""
    COMMIT = 4
    """A commit of its position that names the generation."""
    CONSUME = 5
    """A consume that names the generation; partition -1."""


_CALL = {
    "process": np.int64,
    "counter": np.int64,
    "outcome": np.int8,
    "invoked_ns": np.int64,
    "completed_ns": np.int64,
}
"""Of every call: who made it, the how manieth it was, and when, on the machine's one monotonic clock."""
_WALL = {"invoked_wall_ms": np.int64, "completed_wall_ms": np.int64}
"""On the clock that the database has, too."""
_PLACE = {"topic": np.int64, "partition": np.int32, "offset": np.int64}

TABLES: Mapping[str, Mapping[str, type]] = {
    # One message of a publish. `identity` is its idempotency key, or its producer and sequence. `shared`: another
    # attempt in its topic, of whatever process and outcome, has the same identity or the same value (the loader's to
    # say), so that what the log has need not be this one's doing.
    "attempt": {
        **_CALL, **_PLACE, "hash": np.int64, "key": np.int64, "identity": np.int64, "asked_partition": np.int32,
        "producer": np.int64, "sequence": np.int64, "batch": np.int64, "duplicate": np.bool_,
        "shared": np.bool_,
    },
    # One message as somebody saw it.
    "seen": {**_PLACE, "hash": np.int64, "key": np.int64, "identity": np.int64, "reader": np.int8, "group": np.int64,
             "process": np.int64, "counter": np.int64, "completed_ns": np.int64},
    # One fetch or whole read of a partition: `offset` is what was asked for, `first` and `count` what came.
    "read": {**_CALL, **_PLACE, "reader": np.int8, "first": np.int64, "count": np.int64,
             "log_start": np.int64, "high_watermark": np.int64},
    # One message of a lease. `together` is how many messages came with it in the same answer.
    "delivery": {
        **_CALL, **_WALL, **_PLACE, "group": np.int64, "owner": np.int64, "token": np.int64, "number": np.int32,
        "failures": np.int32, "expires_ms": np.int64, "lease_ms": np.int64, "suspect": np.bool_, "together": np.int32,
    },
    # One message of an answer; EXTEND has offset -1 and speaks for the whole lease. `dead`: it became a dead letter.
    "answer": {
        **_CALL, **_WALL, **_PLACE, "group": np.int64, "owner": np.int64, "token": np.int64, "verb": np.int8,
        "delay_ms": np.int64, "expires_ms": np.int64, "dead": np.bool_,
    },
    # A consume or a seek as such. A consume of unknown outcome may have leased what nobody knows.
    "call": {**_CALL, **_WALL, "topic": np.int64, "partition": np.int32, "group": np.int64, "owner": np.int64,
             "verb": np.int8},
    # How far a group was; the last word after the drain has `final`.
    "progress": {
        **_CALL, "topic": np.int64, "partition": np.int32, "group": np.int64, "final": np.bool_, "epoch": np.int64,
        "start": np.int64, "committed": np.int64, "frontier": np.int64, "high_watermark": np.int64,
        "leased": np.int64, "waiting": np.int64, "skipped": np.int64, "acked": np.int64, "dead": np.int64,
        "discarded": np.int64, "filtered": np.int64, "expired": np.int64, "cut": np.int64,
    },
    # A dead letter at the end. `redriven` counts its redrives; `copy_*` say where it went to by the last one.
    "dead": {**_PLACE, "group": np.int64, "failures": np.int32, "deliveries": np.int32, "hash": np.int64,
             "key": np.int64, "redriven": np.int32, "copy_topic": np.int64, "copy_partition": np.int32,
             "copy_offset": np.int64, "copy_hash": np.int64},
    # Membership of a cursor group.
    "member": {**_CALL, "topic": np.int64, "partition": np.int32, "group": np.int64, "member": np.int64,
               "generation": np.int64, "event": np.int8},
    # A sealed segment, by the catalog and by an independent reader of its file; `exists` 0: the file is not there.
    "segment": {"topic": np.int64, "partition": np.int32, "first": np.int64, "end": np.int64, "rows": np.int64,
                "sealed_hash": np.int64, "read_hash": np.int64, "read_rows": np.int64, "live": np.bool_,
                "exists": np.bool_},
    # What retention cut from a partition, up to `end`, and when; and what of it was unfinished in a group, as told.
    "cut": {"topic": np.int64, "partition": np.int32, "group": np.int64, "first": np.int64, "end": np.int64,
            "unfinished": np.int64, "youngest_ms": np.int64, "horizon_ms": np.int64, "at_ns": np.int64},
    # A figure that was told beside what it truly was: lag, oldest age, memory, a wait. See `SampleKind`.
    "sample": {"kind": np.int8, "topic": np.int64, "group": np.int64, "process": np.int64, "at_ns": np.int64,
               "told": np.int64, "truth": np.int64, "stale": np.bool_},
}  # fmt: skip


class SampleKind(IntEnum):
    """Kinds of samples."""

    LAG = 0
    """Messages, told and true, within a second."""
    OLDEST_AGE_MS = 1
    MEMORY = 2
    """Of a server, in bytes: told is what it has, truth its limit."""
    SERVING = 3
    """After PostgreSQL came back: told is the milliseconds until the first ok publish."""
    OVERLOAD = 4
    """An answer of 429 or 503: told is 1 with Retry-After, 0 without."""
    CANARY = 5
    """A text of another project: told is 1 where it was found."""
    REBALANCES = 6
    """Told is how many the group says that it had."""
    DRIVER = 7
    """A driver of tiering began: told is 1 where it takes the place of one that was killed."""
    TIERING = 8
    """A pass of it: told is how many segments it found begun, taken or damaged, truth how many it made; or it failed,
    which `stale` says."""
    REPEAT = 9
    """A consume repeated under its request id: told is how many messages of the first answer's leases it returned,
    truth how many of them were leased still."""
    BESIDE = 10
    """While another group or partition cannot be read, or only slowly: told is the milliseconds that a call took, or
    the partitions that got stuck, truth the most that may be; or the call failed, which `stale` says."""


class TableColumns:
    """One table: an array for each column, `table.offset` and so on, all of one length."""

    def __init__(self, name: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.name = name
        self.arrays = dict(arrays)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        try:
            column: npt.NDArray[Any] = self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None
        # From now on it is found without asking here.
        self.__dict__[name] = column
        return column

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def where(self, chosen: npt.NDArray[np.generic]) -> TableColumns:
        """The rows of a mask or of indices."""
        return _Chosen(self, chosen)

    def sorted_by(self, *names: str) -> TableColumns:
        """By the first name, then the next; stable."""
        return self.where(np.lexsort([getattr(self, name) for name in reversed(names)]))


class _Chosen(TableColumns):
    """Some rows of a table. A column of them is taken out when it is asked for: most checks need four of fifteen."""

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
    """A table of rows that say what they know; -1 stands for the other numbers of places, 0 for the rest."""
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
    """Tables of one name as one."""
    found = [part for part in parts if len(part)]
    if not found:
        return columns(name)
    return TableColumns(name, {each: np.concatenate([getattr(part, each) for part in found]) for each in TABLES[name]})


@dataclass(frozen=True, kw_only=True)
class Tables:
    """All facts of one scope, by the names of `TABLES`; a table that is not there is empty."""

    by_name: Mapping[str, TableColumns]

    def __getitem__(self, name: str) -> TableColumns:
        return self.by_name.get(name) or _empty(name)


@cache
def _empty(name: str) -> TableColumns:
    return columns(name)
