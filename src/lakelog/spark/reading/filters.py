"""Filters that Spark pushes down to a batch read: which partitions, offsets, times and keys a query can use.

A filter only removes what cannot match. Spark evaluates every filter again, so a filter that is not understood here
costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeGuard

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from lakelog.client.reading.read_ranges import ReadRange
from lakelog.model.lake import PlanOptions

_LEAST = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """The messages that the filters of a query can match. None means every value."""

    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    """The end of the offsets, not included."""
    since: datetime | None = None
    until: datetime | None = None
    """The end of the times, not included."""
    keys: frozenset[bytes] | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> RowFilter:
        found = cls()
        for each in filters:
            found = found._and(each)
        return found

    @property
    def is_empty(self) -> bool:
        """True if no message can match."""
        return self.since is not None and self.until is not None and self.since >= self.until

    def plan_options(self, options: PlanOptions) -> PlanOptions:
        """Return the options of the plan within the times of the filter, so that older files are not planned."""
        since = max((time for time in (options.since, self.since) if time is not None), default=None)
        until = min((time for time in (options.until, self.until) if time is not None), default=None)
        return msgspec.structs.replace(options, since=since, until=until)

    def ranges(self, read_ranges: Iterable[ReadRange]) -> list[ReadRange]:
        """Return the parts of the ranges that the partitions and offsets of the filter contain."""
        found = []
        for each in read_ranges:
            first, end = max(each.first, self.first), each.end if self.end is None else min(each.end, self.end)
            if first < end and (self.partitions is None or each.partition in self.partitions):
                found.append(replace(each, first=first, end=end))
        return found

    def _and(self, found: Filter) -> RowFilter:
        name = ".".join(getattr(found, "attribute", ()))
        if isinstance(found, EqualTo | EqualNullSafe):
            return self._one_of(name, (found.value,))
        if isinstance(found, In):
            return self._one_of(name, found.value)
        if isinstance(found, GreaterThan | GreaterThanOrEqual):
            return self._from(name, found.value, excluded=isinstance(found, GreaterThan))
        if isinstance(found, LessThan | LessThanOrEqual):
            return self._up_to(name, found.value, included=isinstance(found, LessThanOrEqual))
        return self

    def _one_of(self, name: str, values: Sequence[object]) -> RowFilter:
        if name == "partition" and all(isinstance(one, int) for one in values):
            numbers = frozenset(one for one in values if isinstance(one, int))
            return replace(self, partitions=numbers if self.partitions is None else self.partitions & numbers)
        if name == "key" and all(isinstance(one, bytes | bytearray) for one in values):
            keys = frozenset(bytes(one) for one in values if isinstance(one, bytes | bytearray))
            return replace(self, keys=keys if self.keys is None else self.keys & keys)
        if len(values) == 1:
            return self._from(name, values[0], excluded=False)._up_to(name, values[0], included=True)
        return self

    def _from(self, name: str, least: object, *, excluded: bool) -> RowFilter:
        if name == "offset" and isinstance(least, int):
            return replace(self, first=max(self.first, least + excluded))
        if name == "appended_at" and _is_time(least):
            return replace(self, since=least if self.since is None else max(self.since, least))
        return self

    def _up_to(self, name: str, most: object, *, included: bool) -> RowFilter:
        if name == "offset" and isinstance(most, int):
            end = most + included
            return replace(self, end=end if self.end is None else min(self.end, end))
        if name == "appended_at" and _is_time(most):
            until = most + _LEAST if included else most
            return replace(self, until=until if self.until is None else min(self.until, until))
        return self


def with_keys(batches: Iterable[pa.RecordBatch], keys: frozenset[bytes]) -> Iterable[pa.RecordBatch]:
    """Yield the messages of the batches that have one of the keys."""
    wanted = pa.array(sorted(keys), pa.binary())
    for batch in batches:
        column = batch.column("key")
        found = batch.filter(pc.is_in(column, value_set=wanted.cast(column.type)))
        if found.num_rows:
            yield found


def _is_time(value: object) -> TypeGuard[datetime]:
    return isinstance(value, datetime) and value.tzinfo is not None
