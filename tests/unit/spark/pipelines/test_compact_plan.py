"""Which segments are replaced together: adjacent ones of one day, up to a size, when no more are expected."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakelog.model.lake import PartitionPlan, Plan
from lakelog.model.segment import Segment
from lakelog.segments.layout import segment_path
from lakelog.spark.pipelines.compact_plan import CompactOptions, Replaced, replaceable

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=3)
OPTIONS = CompactOptions(file_bytes=100, min_age=timedelta(hours=1))


def segment(first: int, size: int = 30, at: datetime = NOON, until: datetime | None = None) -> Segment:
    return Segment(
        partition=0,
        first=first,
        end=first + 10,
        path=f"p/{first}",
        bytes=size,
        file_hash="ab",
        content_hash="cd",
        first_at=at,
        last_at=until or at,
        epoch=0,
    )


def plan(segments: Sequence[Segment], later: Sequence[Segment] = ()) -> Plan:
    end = max(each.end for each in (*segments, *later))
    part = PartitionPlan(
        partition=0,
        log_start=0,
        high_watermark=end,
        start=0,
        end=end,
        segments=tuple(segments),
        hot_from=segments[-1].end,
        later=tuple(later),
    )
    return Plan(topic="t", incarnation=1, epoch=0, environment_id=1, store="memory://", partitions=(part,))


def firsts(found: Sequence[Replaced]) -> list[list[int]]:
    return [[each.first for each in part] for part in found]


def test_adjacent_segments_of_a_day_are_merged_up_to_the_size() -> None:
    segments = [segment(first) for first in range(0, 80, 10)]
    assert firsts(replaceable(plan(segments), OPTIONS, LATER)) == [[0, 10, 20], [30, 40, 50], [60, 70]]


def test_a_remainder_waits_until_it_is_old_enough() -> None:
    segments = [segment(first) for first in range(0, 50, 10)]
    assert firsts(replaceable(plan(segments), OPTIONS, NOON + timedelta(minutes=59))) == [[0, 10, 20]]
    assert firsts(replaceable(plan(segments), OPTIONS, NOON + timedelta(hours=1))) == [[0, 10, 20], [30, 40]]


def test_large_segments_and_single_ones_stay() -> None:
    assert replaceable(plan([segment(0, 80), segment(10, 30)]), OPTIONS, LATER) == []
    assert replaceable(plan([segment(0, 60), segment(10, 60), segment(20, 60)]), OPTIONS, LATER) == []
    sizes = [10, 10, 75, 10, 10]
    segments = [segment(10 * number, size) for number, size in enumerate(sizes)]
    assert firsts(replaceable(plan(segments), OPTIONS, LATER)) == [[0, 10], [30, 40]]
    # Nothing will follow the first pair, so it does not wait.
    assert firsts(replaceable(plan(segments), OPTIONS, NOON)) == [[0, 10]]


def test_files_that_lack_the_columns_are_written_again_if_it_is_asked_for() -> None:
    full, small = segment(0, 80), segment(10, 30)
    filled = [replace(each, path=segment_path(1, 1, 0, each.first, each.end, columns=2)) for each in (full, small)]
    for segments, columns, expected in (
        ([full, small], 0, []),
        ([full, small], 2, [[0], [10]]),
        (filled, 2, []),
        (filled, 3, [[0], [10]]),
        ([filled[0], small], 2, [[10]]),
        ([segment(0, 120)], 1, [[0]]),
    ):
        assert firsts(replaceable(plan(segments), OPTIONS, LATER, columns)) == expected
    assert firsts(replaceable(plan([full, small]), OPTIONS, NOON, 2)) == [[0]], "the rest of the day waits"


def test_days_and_gaps_separate_files() -> None:
    morning = datetime(2026, 2, 1, 0, 0, 1, tzinfo=UTC)
    segments = [segment(0), segment(10), segment(20, at=morning), segment(30, at=morning)]
    assert firsts(replaceable(plan(segments), OPTIONS, LATER)) == [[0, 10], [20, 30]]
    behind = [segment(first) for first in (50, 60)]
    assert firsts(replaceable(plan(segments[:2], behind), OPTIONS, LATER)) == [[0, 10], [50, 60]]


def test_a_segment_that_crosses_midnight_is_split_first() -> None:
    crossing = segment(10, 500, NOON, NOON + timedelta(days=1))
    segments = [segment(0), crossing, segment(20, at=NOON + timedelta(days=1))]
    assert firsts(replaceable(plan(segments), OPTIONS, NOON)) == [[10]]


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 40)), min_size=1, max_size=30))
def test_every_part_fits_and_a_second_plan_is_empty(shapes: list[tuple[int, int]]) -> None:
    """S20: no segment is in two parts, and compaction comes to rest."""
    hours = sorted(hour for _, hour in shapes)
    times = [NOON + timedelta(hours=hour) for hour in hours]
    segments = [segment(10 * n, size, time) for n, ((size, _), time) in enumerate(zip(shapes, times, strict=True))]
    found = replaceable(plan(segments), OPTIONS, LATER)
    named = [each.first for part in found for each in part]
    assert named == sorted(set(named))
    for part in found:
        assert len(part) > 1 and sum(each.bytes for each in part) <= 100
        assert all(before.end == after.first for before, after in itertools.pairwise(part))
        assert len({each.first_at.date() for each in part}) == 1
    for _ in range(20):
        gone = {each.first: part for part in found for each in part}
        segments = [
            _one(gone[each.first]) if each.first in gone else each
            for each in segments
            if each.first not in gone or gone[each.first][0].first == each.first
        ]
        found = replaceable(plan(segments), OPTIONS, LATER)
        if not found:
            return
    raise AssertionError("the plan never becomes empty")


def _one(part: Replaced) -> Segment:
    first, last = part[0], part[-1]
    made = segment(first.first, sum(each.bytes for each in part), first.first_at, last.last_at)
    return type(made)(**{**{name: getattr(made, name) for name in made.__struct_fields__}, "end": last.end})
