"""Decides which snapshots bring an Iceberg table to the verified segments of its topic. It is pure.

Files of the log copy never overlap, and neither do files of a table. A file that overlaps others was written by a
compaction, and takes their place in one snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from lakelog.model.iceberg import IcebergOperation, IcebergStep, Ranges
from lakelog.model.segment import Segment
from lakelog.segments.layout import parse_segment_path

MAX_SEGMENTS = 5_000
"""Segments that one call adds and removes at most, so that a long history is not one large commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file of the table or of the log. `segment` is None for a file that leaves the table."""

    partition: int
    first: int
    end: int
    path: str
    segment: Segment | None = None


@dataclass(slots=True)
class _Exchange:
    """Files that overlap, directly or through another one: those that leave the table, and those that enter it."""

    added: list[_File] = field(default_factory=list)
    removed: list[_File] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.added) + len(self.removed)

    @property
    def operation(self) -> IcebergOperation:
        if not self.removed:
            return IcebergOperation.APPEND
        if not self.added:
            return IcebergOperation.DELETE
        is_same = _ranges(self.added) == _ranges(self.removed)
        return IcebergOperation.REPLACE if is_same else IcebergOperation.OVERWRITE


# A file is replaced before its successors are added, so that each snapshot covers whole ranges.
_ORDER = (
    IcebergOperation.REPLACE,
    IcebergOperation.OVERWRITE,
    IcebergOperation.DELETE,
    IcebergOperation.APPEND,
)


def steps_of(
    present: Collection[str], wanted: Sequence[Segment], limit: int = MAX_SEGMENTS
) -> tuple[list[IcebergStep], int]:
    """Return the snapshots to add, and the number of segments that are left for another call.

    Args:
        present: The paths of the segments in the table.
        wanted: The verified segments of the topic, without overlaps.
        limit: The largest number of segments to add and to remove. The first exchange is returned whatever its size.
    """
    paths = {segment.path for segment in wanted}
    known = set(present)
    removed = [_file_at(path) for path in known - paths]
    added = [_file_of(segment) for segment in wanted if segment.path not in known]
    ordered = sorted(_exchanges(added, removed), key=lambda each: _ORDER.index(each.operation))
    sizes = list(accumulate(each.size for each in ordered))
    count = max(1, bisect_right(sizes, limit))
    exchanges, rest = ordered[:count], sum(each.size for each in ordered[count:])
    live = {path: _file_at(path) for path in known}
    steps = []
    for operation in _ORDER:
        those = [each for each in exchanges if each.operation is operation]
        new = [file for each in those for file in each.added]
        old = [file for each in those for file in each.removed]
        if new or old:
            for each in old:
                del live[each.path]
            live |= {each.path: each for each in new}
            steps.append(
                IcebergStep(
                    operation=operation,
                    added=[each.segment for each in new if each.segment is not None],
                    removed=[each.path for each in old],
                    covered=_ranges(live.values()),
                )
            )
    return steps, rest


def _exchanges(added: Iterable[_File], removed: Iterable[_File]) -> list[_Exchange]:
    """Return the groups of files that overlap. A group of one file is an addition or a removal."""
    found: list[_Exchange] = []
    place, end = -1, 0
    for file in sorted([*added, *removed], key=lambda each: (each.partition, each.first)):
        if file.partition != place or file.first >= end:
            found.append(_Exchange())
            place, end = file.partition, 0
        end = max(end, file.end)
        (found[-1].removed if file.segment is None else found[-1].added).append(file)
    return found


def _ranges(files: Iterable[_File]) -> Ranges:
    """Return the offsets that files hold, by partition, with adjacent ranges joined."""
    found: dict[int, list[tuple[int, int]]] = {}
    ordered = sorted(files, key=lambda each: (each.partition, each.first))
    for partition, those in groupby(ordered, key=lambda each: each.partition):
        ranges: list[tuple[int, int]] = []
        for file in those:
            if ranges and ranges[-1][1] == file.first:
                ranges[-1] = (ranges[-1][0], file.end)
            else:
                ranges.append((file.first, file.end))
        found[partition] = ranges
    return found


def _file_at(path: str) -> _File:
    place = parse_segment_path(path)
    assert place is not None, path
    return _File(partition=place.partition, first=place.first, end=place.end, path=path)


def _file_of(segment: Segment) -> _File:
    return _File(partition=segment.partition, first=segment.first, end=segment.end, path=segment.path, segment=segment)
