"""Chooses the segments that compaction replaces together. Pure: it reads and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakelog.model.lake import MAX_SEGMENTS, Plan
from lakelog.model.segment import Segment
from lakelog.segments.layout import columns_of_file
from lakelog.segments.merging import day_of

FILE_BYTES = 256 << 20
QUIET = timedelta(hours=1)

Replaced = tuple[Segment, ...]
"""Adjacent segments of one partition that are replaced together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """The size of files, and the age at which a smaller one is written.

    Attributes:
        file_bytes: The largest size of a new file.
        min_age: Segments of a day that do not fill a file are compacted when the newest message has this age.
        fill_columns: Also write files again that lack the typed columns which the topic has now.
    """

    file_bytes: int = FILE_BYTES
    min_age: timedelta = QUIET
    fill_columns: bool = False

    @property
    def full_bytes(self) -> int:
        """The size from which a file is not merged again. Otherwise each small file would copy a large one."""
        return self.file_bytes * 3 // 4


def replaceable(plan: Plan, options: CompactOptions, now: datetime, columns: int = 0) -> list[Replaced]:
    """Return what can be compacted, by partition and offset.

    A segment that crosses midnight in UTC is first split on its own, whatever its age. The others are merged with
    adjacent ones of their day.

    Args:
        plan: The segments.
        options: The size and age of files.
        now: The database's time.
        columns: The version of the topic's columns that all files must have. Default: 0, any.
    """
    found: list[Replaced] = []
    for partition in plan.partitions:
        segments = sorted((*partition.segments, *partition.later), key=lambda segment: segment.first)
        for run in _runs(segments):
            found += _merged(run, options, now, columns) if _is_of_one_day(run[0]) else [tuple(run)]
    return found


def _runs(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield adjacent segments of one day together, and each segment of two days alone."""
    run: list[Segment] = []
    for segment in segments:
        if run and not _follows(run[-1], segment):
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


def _follows(before: Segment, segment: Segment) -> bool:
    is_same_day = (
        _is_of_one_day(before) and _is_of_one_day(segment) and day_of(before.last_at) == day_of(segment.first_at)
    )
    return is_same_day and before.end == segment.first


def _is_of_one_day(segment: Segment) -> bool:
    return day_of(segment.first_at) == day_of(segment.last_at)


def _merged(run: Sequence[Segment], options: CompactOptions, now: datetime, columns: int) -> Iterator[Replaced]:
    """Yield the parts of a run that become one file each."""
    part: list[Segment] = []
    size = 0
    for segment in run:
        if part and (size + segment.bytes > options.file_bytes or len(part) == MAX_SEGMENTS):
            if _is_worth(part, columns):
                yield tuple(part)
            part, size = [], 0
        if segment.bytes < options.full_bytes or _lacks(segment, columns):
            part.append(segment)
            size += segment.bytes
        elif part:
            # The file after it is full, so nothing will ever follow this part.
            if _is_worth(part, columns):
                yield tuple(part)
            part, size = [], 0
    if _is_worth(part, columns) and run[-1].last_at <= now - options.min_age:
        yield tuple(part)


def _is_worth(part: Sequence[Segment], columns: int) -> bool:
    """Return whether the part becomes better as one new file."""
    return len(part) > 1 or any(_lacks(segment, columns) for segment in part)


def _lacks(segment: Segment, columns: int) -> bool:
    return columns > 0 and columns_of_file(segment.path) != columns
