"""Routing of rows to the parts of a Spark job. A part has whole instances of its scopes.

Attempts pass three stages: by identity, by value, and then by partition, process and run. All other rows go directly to
the part that judges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from prove.checker.column_chunks import Array, chunks, scattered
from prove.checker.invariant import CheckScope
from prove.checker.row_matching import found_at, mixed
from prove.checker.scopes import GROUPED, Key, doubtful, keys, leasing, timed
from prove.history.tables import ReaderKind, TableColumns

PLACED = ("seen", "read", "delivery", "answer", "progress", "dead", "segment", "cut")
"""Tables whose rows belong to a partition."""
AT_PLACE = (CheckScope.LOG, CheckScope.COLD, CheckScope.LEASE)


@dataclass(kw_only=True)
class RoutingSummary:
    """Facts about all files that are needed before rows can be routed."""

    cut: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    rows: int = 0
    places: dict[str, int] = field(default_factory=dict)
    """The number of rows of each partition, by `topic partition`."""
    groups: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """The topics and groups that each table has."""
    replays: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and last replayed offset, by `topic partition`."""

    def take(self, columns: TableColumns) -> None:
        self.rows += len(columns)
        if columns.name in GROUPED:
            found = {(key[0], key[1]) for key in keys(columns, "topic", "group")}
            self.groups.setdefault(columns.name, set()).update(found)
        if columns.name in PLACED or columns.name == "attempt":
            self._take_places(columns)
        if columns.name == "seen":
            self._take_replays(columns.where(columns.reader == ReaderKind.REPLAY))

    def add(self, other: RoutingSummary) -> None:
        self.cut += other.cut
        self.names |= other.names
        self.rows += other.rows
        for place, rows in other.places.items():
            self.places[place] = self.places.get(place, 0) + rows
        for name, groups in other.groups.items():
            self.groups.setdefault(name, set()).update(groups)
        for place, (first, last) in other.replays.items():
            known = self.replays.get(place, (first, last))
            self.replays[place] = (min(first, known[0]), max(last, known[1]))

    def _take_places(self, columns: TableColumns) -> None:
        _, first, rows = np.unique(mixed(columns.topic, columns.partition), return_index=True, return_counts=True)
        for row, count in zip(first, rows, strict=True):
            if columns.partition[row] >= 0:
                place = f"{columns.topic[row]} {columns.partition[row]}"
                self.places[place] = self.places.get(place, 0) + int(count)

    def _take_replays(self, replays: TableColumns) -> None:
        for topic, partition in keys(replays, "topic", "partition"):
            offsets = replays.offset[(replays.topic == topic) & (replays.partition == partition)]
            self.add(RoutingSummary(replays={f"{topic} {partition}": (int(offsets.min()), int(offsets.max()))}))


class Routes:
    """The parts to which rows go.

    The last parts are the partitions, the largest first, then processes, groups, and the run.
    """

    def __init__(self, summary: RoutingSummary, *, buckets: int) -> None:
        self.buckets = buckets
        """The number of parts by identity, by value, by process and by group."""
        places = sorted(summary.places, key=lambda place: -summary.places[place])
        self._topics = np.array([int(place.split()[0]) for place in places], np.int64)
        partitions = np.array([int(place.split()[1]) for place in places], np.int32)
        codes = mixed(self._topics, partitions)
        self._order = np.argsort(codes)
        self._codes = codes[self._order]
        self._replays = {_key(place): span for place, span in summary.replays.items()}
        self._processes = len(places)
        self._groups = self._processes + buckets
        self._run = self._groups + buckets
        self.parts = self._run + 1
        known: Mapping[str, set[tuple[int, int]]] = summary.groups
        self.leasing: list[Key] = leasing({name: set(known.get(name, ())) for name in GROUPED})

    def scopes(self, part: int) -> tuple[CheckScope, ...]:
        """Return the scopes that one of the last parts judges."""
        if part < self._processes:
            return AT_PLACE
        return (
            CheckScope.PRODUCER if part < self._groups else CheckScope.GROUP if part < self._run else CheckScope.RUN,
        )

    def by_identity(self, columns: TableColumns) -> Array:
        """Return the part of each row by identity.

        Attempts without an identity are spread; such observations are dropped.
        """
        named = columns.identity != 0
        parts = self._bucket(columns.topic, np.where(named, columns.identity, columns.hash))
        return parts if columns.name == "attempt" else np.where(named, parts, -1)

    def by_value(self, columns: TableColumns) -> Array:
        if columns.name == "dead":
            return np.where(columns.redriven > 0, self._bucket(columns.copy_topic, columns.copy_hash), -1)
        return self._bucket(columns.topic, columns.hash)

    def last(self, columns: TableColumns) -> Iterator[pa.RecordBatch]:
        """Yield the rows for each of the last parts that needs them. Attempts are already located."""
        if columns.name in PLACED or columns.name == "attempt":
            yield from scattered(columns, self._place(columns))
        if columns.name == "attempt":
            yield from scattered(columns, self._processes + self._bucket(columns.process))
            yield from chunks(self._run, timed(columns))
        elif columns.name == "read":
            final = columns.where(columns.reader == ReaderKind.FINAL)
            for part in range(self._processes, self._groups):
                yield from chunks(part, final)
        elif columns.name == "seen":
            yield from self._replayed(columns)
        elif columns.name in ("member", "call", "progress", "sample"):
            yield from scattered(columns, self._group(columns))
        if columns.name == "call":
            yield from self._called(doubtful(columns))
        elif columns.name == "sample":
            yield from chunks(self._run, columns)

    def _called(self, calls: TableColumns) -> Iterator[pa.RecordBatch]:
        """Yield a call that names no partition for all partitions of its topic."""
        yield from scattered(calls, self._place(calls))
        everywhere = calls.where(calls.partition < 0)
        for (topic,) in keys(everywhere, "topic"):
            some = everywhere.where(everywhere.topic == topic)
            for part in np.flatnonzero(self._topics == topic):
                yield from chunks(int(part), some)

    def _replayed(self, seen: TableColumns) -> Iterator[pa.RecordBatch]:
        """Yield replays for their group, and the matching final read for each group that leases or reads it."""
        replays = seen.where(seen.reader == ReaderKind.REPLAY)
        yield from scattered(replays, self._group(replays))
        final = seen.reader == ReaderKind.FINAL
        for (topic, partition), (first, last) in self._replays.items():
            there = final & (seen.topic == topic) & (seen.partition == partition)
            same = seen.where(there & (seen.offset >= first) & (seen.offset <= last))
            for part in range(self._groups, self._run):
                yield from chunks(part, same)

    def _place(self, columns: TableColumns) -> Array:
        at = found_at(self._codes, mixed(columns.topic, columns.partition))
        if not len(self._order):
            return at
        return np.where(at >= 0, self._order[at], -1)

    def _group(self, columns: TableColumns) -> Array:
        return self._groups + self._bucket(columns.topic, columns.group)

    def _bucket(self, *columns: Array) -> Array:
        codes: Array = mixed(*columns).view(np.uint64) % np.uint64(self.buckets)
        return codes.astype(np.int64)


def _key(place: str) -> tuple[int, int]:
    topic, partition = place.split()
    return int(topic), int(partition)
