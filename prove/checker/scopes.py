"""Divides the tables of a run into scopes, and locates attempts of unknown outcome. It checks nothing.

The tables may be a part of a larger run: all rows of some partitions, processes or values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from prove.checker.enum_codes import OUTCOME, READER, VERB
from prove.checker.invariant import CheckScope
from prove.checker.row_matching import counted, found_at, mixed, true_at
from prove.history.tables import TableColumns, Tables, joined

Key = tuple[int, ...]
Parts = dict[Key, TableColumns]

RUN_COLUMNS = (
    "process", "counter", "outcome", "invoked_ns", "completed_ns", "topic", "hash", "identity", "batch", "shared",
)  # fmt: skip
"""The columns of an attempt that the scope RUN has."""
LEASING = ("delivery", "answer", "dead")
"""Tables whose rows show that a group has leased."""
GROUPED = (*LEASING, "call", "progress", "member")
_SLOW_NS = 5_000_000_000


# Attempts of unknown outcome --------------------------------------------------------------------------------------


def placed(tables: Tables) -> Tables:
    """Give attempts of unknown outcome the offset of their value in the final read.

    Mark attempts that share a value.
    """
    attempts = tables["attempt"]
    if not len(attempts):
        return tables
    attempts = with_places(with_shared(attempts), tables["seen"])
    return Tables(by_name={**tables.by_name, "attempt": attempts})


def with_shared(attempts: TableColumns, *, by: tuple[str, ...] = ("identity", "hash")) -> TableColumns:
    """Set `shared` for attempts whose identity or value another attempt of the topic has."""
    shared = attempts.shared.copy()
    for name in by:
        codes = mixed(attempts.topic, attempts.arrays[name])
        named = attempts.arrays[name] != 0
        once, times = counted(codes[named])
        repeated = once[times > 1]
        if len(repeated):
            shared |= named & (found_at(repeated, codes) >= 0)
    return TableColumns(attempts.name, {**attempts.arrays, "shared": shared})


def with_places(attempts: TableColumns, seen: TableColumns) -> TableColumns:
    """Give each attempt of unknown outcome the offset of its value in the final read, if it is there."""
    lost = true_at((attempts.outcome == OUTCOME.INFO) & (attempts.offset < 0))
    final = true_at(seen.reader == READER.FINAL) if len(lost) else lost
    if not len(lost) or not len(final):
        return attempts
    codes = mixed(seen.topic[final], seen.hash[final])
    order = np.argsort(codes, kind="stable")
    at = found_at(codes[order], mixed(attempts.topic[lost], attempts.hash[lost]))
    lost, rows = lost[at >= 0], final[order[at[at >= 0]]]
    partition, offset = attempts.partition.copy(), attempts.offset.copy()
    partition[lost], offset[lost] = seen.partition[rows], seen.offset[rows]
    return TableColumns(attempts.name, {**attempts.arrays, "partition": partition, "offset": offset})


# The instances of a scope -----------------------------------------------------------------------------------------


def instances(scope: CheckScope, tables: Tables, groups: Sequence[Key] | None = None) -> Iterator[Tables]:
    """Yield the tables of each instance of a scope that has rows. The attempts in `tables` are already located.

    `groups` are the groups that lease, each with its topic, if `tables` do not show all of them.
    """
    if scope is CheckScope.LEASE:
        return _leases(tables, lease_groups(tables) if groups is None else groups)
    return _CUTS[scope](tables)


def split(table: TableColumns, *names: str) -> Parts:
    """Return the rows grouped by the values of some columns."""
    if not len(table):
        return {}
    columns = [getattr(table, name) for name in names]
    if all((column == column[0]).all() for column in columns):
        return {tuple(int(column[0]) for column in columns): table}
    order = np.lexsort(columns[::-1])
    fresh = np.zeros(len(table), np.bool_)
    fresh[0] = True
    ordered = [column[order] for column in columns]
    for column in ordered:
        fresh[1:] |= column[1:] != column[:-1]
    begins = true_at(fresh)
    ends = np.append(begins[1:], len(table))
    return {
        tuple(int(column[begin]) for column in ordered): table.where(order[begin:end])
        for begin, end in zip(begins, ends, strict=True)
    }


def _chosen(table: TableColumns, mask: npt.NDArray[Any]) -> TableColumns:
    """Return the selected rows, without a copy if all rows are selected."""
    return table if mask.all() else table.where(mask)


def _by(parts: Mapping[str, Parts]) -> Iterator[Tables]:
    """Yield one instance for each key that any table has."""
    for key in dict.fromkeys(key for those in parts.values() for key in those):
        yield Tables(by_name={name: those[key] for name, those in parts.items() if key in those})


def _values(tables: Tables) -> Iterator[Tables]:
    dead = tables["dead"]
    return _by(
        {
            "attempt": split(tables["attempt"], "topic"),
            "seen": split(tables["seen"], "topic"),
            "dead": split(_chosen(dead, dead.redriven > 0), "copy_topic"),
        }
    )


def _identities(tables: Tables) -> Iterator[Tables]:
    attempts, seen = tables["attempt"], tables["seen"]
    return _by(
        {
            "attempt": split(_chosen(attempts, attempts.identity != 0), "topic"),
            "seen": split(_chosen(seen, seen.identity != 0), "topic"),
        }
    )


def _logs(tables: Tables) -> Iterator[Tables]:
    attempts = tables["attempt"]
    place = ("topic", "partition")
    return _by(
        {
            "attempt": split(_chosen(attempts, attempts.partition >= 0), *place),
            "seen": split(tables["seen"], *place),
            "read": split(tables["read"], *place),
        }
    )


def _producers(tables: Tables) -> Iterator[Tables]:
    reads = tables["read"]
    final = _chosen(reads, reads.reader == READER.FINAL)
    for attempts in split(tables["attempt"], "process").values():
        yield Tables(by_name={"attempt": attempts, "read": final})


def _leases(tables: Tables, groups: Sequence[Key]) -> Iterator[Tables]:
    place = ("topic", "group", "partition")
    parts = {name: split(tables[name], *place) for name in ("delivery", "answer", "progress", "dead", "cut")}
    calls = split(doubtful(tables["call"]), *place)
    seen = tables["seen"]
    final = split(_chosen(seen, seen.reader == READER.FINAL), "topic", "partition")
    for topic, group in groups:
        known = {key[2] for those in parts.values() for key in those if key[:2] == (topic, group) and key[2] >= 0}
        known |= {key[1] for key in final if key[0] == topic}
        for partition in sorted(known):
            key = (topic, group, partition)
            found = {name: those[key] for name, those in parts.items() if key in those}
            cuts = [those for each in ((topic, 0, partition), key) if (those := parts["cut"].get(each)) is not None]
            if group and cuts:
                found["cut"] = joined("cut", cuts)
            asked = [those for each in (-1, partition) if (those := calls.get((topic, group, each))) is not None]
            if asked:
                found["call"] = joined("call", asked)
            if (topic, partition) in final:
                found["seen"] = final[topic, partition]
            yield Tables(by_name=found)


def doubtful(calls: TableColumns) -> TableColumns:
    """Return the calls that each partition needs: seeks, and consumes that may have leased unrecorded messages."""
    told = (calls.outcome == OUTCOME.OK) & (calls.completed_ns - calls.invoked_ns < _SLOW_NS)
    return calls.where((calls.verb != VERB.CONSUME) | ~told)


def lease_groups(tables: Tables) -> list[Key]:
    """Return the topic and the name of the groups that lease."""
    return leasing(
        {name: set(keys(tables[name], "topic", "group")) for name in (*LEASING, "call", "progress", "member")}
    )


def leasing(found: Mapping[str, Set[Key]]) -> list[Key]:
    """Return the groups that lease, from the groups that each table has.

    A group that has members and never leased is a cursor group.
    """
    surely = set[Key]().union(*(found[name] for name in LEASING))
    perhaps = (found["call"] | found["progress"]) - found["member"]
    return sorted(surely | perhaps)


def keys(table: TableColumns, *names: str) -> list[Key]:
    """Return the distinct values of some columns."""
    if not len(table):
        return []
    columns = [getattr(table, name) for name in names]
    if all((column == column[0]).all() for column in columns):
        return [tuple(int(column[0]) for column in columns)]
    firsts = np.unique(mixed(*columns), return_index=True)[1]
    return [tuple(int(column[row]) for column in columns) for row in firsts]


def _groups(tables: Tables) -> Iterator[Tables]:
    place = ("topic", "group")
    seen = tables["seen"]
    replays = _chosen(seen, seen.reader == READER.REPLAY)
    parts = {name: split(tables[name], *place) for name in ("member", "call", "progress", "sample")}
    parts["seen"] = split(replays, *place)
    final = _chosen(seen, seen.reader == READER.FINAL) if len(replays) else seen.where(np.zeros(len(seen), np.bool_))
    for found in _by(parts):
        replayed = found.by_name.get("seen")
        if replayed is None:
            yield found
        else:
            same = joined("seen", [replayed, replayed_of(final, replayed)])
            yield Tables(by_name={**found.by_name, "seen": same})


def replayed_of(final: TableColumns, replays: TableColumns) -> TableColumns:
    """Return the rows of the final read within the replayed offsets."""
    found = []
    for (topic, partition), part in split(replays, "topic", "partition").items():
        there = (final.topic == topic) & (final.partition == partition)
        found.append(final.where(there & (final.offset >= part.offset.min()) & (final.offset <= part.offset.max())))
    return joined("seen", found)


def _cold(tables: Tables) -> Iterator[Tables]:
    place = ("topic", "partition")
    seen = tables["seen"]
    parts = {name: split(tables[name], *place) for name in ("segment", "read", "cut")}
    parts["seen"] = split(_chosen(seen, (seen.reader == READER.COLD) | (seen.reader == READER.FINAL)), *place)
    return _by(parts)


def _run(tables: Tables) -> Iterator[Tables]:
    yield Tables(by_name={"sample": tables["sample"], "attempt": timed(tables["attempt"])})


def timed(attempts: TableColumns) -> TableColumns:
    """Return the attempts with the columns of the scope RUN."""
    return TableColumns(attempts.name, {name: attempts.arrays[name] for name in RUN_COLUMNS})


_CUTS: Mapping[CheckScope, Callable[[Tables], Iterator[Tables]]] = {
    CheckScope.VALUE: _values,
    CheckScope.IDENTITY: _identities,
    CheckScope.LOG: _logs,
    CheckScope.PRODUCER: _producers,
    CheckScope.GROUP: _groups,
    CheckScope.COLD: _cold,
    CheckScope.RUN: _run,
}
