"""Splits of a plan: ranges in, ranges out, with no gap and no overlap (S21, S22)."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.reading.read_ranges import ReadRange, ranges_in, ranges_of, require_whole
from lakelog.errors import OffsetOutOfRange, Unavailable
from lakelog.model.lake import PartitionPlan, Plan
from lakelog.model.segment import Segment
from lakelog.spark.reading.planning import SplitSizes, hot_layers, splits_of

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def segment(first: int, end: int, *, partition: int = 0, size: int = 1000, groups: tuple[int, ...] = ()) -> Segment:
    return Segment(
        partition=partition,
        first=first,
        end=end,
        path=f"p{partition}/{first}-{end}",
        bytes=size,
        file_hash="",
        content_hash="",
        first_at=_AT,
        last_at=_AT,
        epoch=0,
        groups=groups,
    )


def plan_of(*partitions: PartitionPlan) -> Plan:
    return Plan(topic="t", incarnation=1, epoch=0, environment_id=1, store="file:///s", partitions=partitions)


def partition_of(start: int, end: int, segments: list[Segment], hot_from: int, *, number: int = 0) -> PartitionPlan:
    return PartitionPlan(
        partition=number,
        log_start=0,
        high_watermark=max(end, hot_from),
        start=start,
        end=end,
        segments=tuple(segments),
        hot_from=hot_from,
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Contiguous segments from the log start on, then hot; any part of it is asked for."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        lengths = draw(st.lists(st.integers(1, 5000), max_size=6))
        segments, at = [], 0
        for length in lengths:
            groups = tuple(range(at, at + length, draw(st.integers(1, 1000)))) if draw(st.booleans()) else ()
            segments.append(
                segment(at, at + length, partition=number, size=draw(st.integers(0, 10_000)), groups=groups)
            )
            at += length
        head = at + draw(st.integers(0, 5000))
        start = draw(st.integers(0, head))
        end = draw(st.integers(start, head))
        needed = [one for one in segments if one.end > start and one.first < end]
        made.append(partition_of(start, end, needed, min(max(at, start), end), number=number))
    return plan_of(*made)


sizes = st.builds(
    SplitSizes,
    cold_bytes=st.integers(1, 5000),
    least_cold_bytes=st.integers(1, 5000),
    hot_messages=st.integers(1, 2000),
    least_hot_messages=st.integers(1, 2000),
    aim=st.integers(1, 40),
)


@given(plan=plans(), sizes=sizes)
def test_every_offset_is_in_one_split_s22(plan: Plan, sizes: SplitSizes) -> None:
    read: dict[int, list[ReadRange]] = defaultdict(list)
    for split in splits_of(ranges_of(plan), sizes):
        assert split, "an empty split is a task for nothing"
        for read_range in split:
            read[read_range.partition].append(read_range)
    for partition in plan.partitions:
        at = partition.start
        for read_range in sorted(read[partition.partition], key=lambda read_range: read_range.first):
            assert (read_range.first, read_range.end > read_range.first) == (at, True)
            if read_range.segment is not None:
                assert read_range.segment.first <= read_range.first and read_range.end <= read_range.segment.end
            at = read_range.end
        assert at == partition.end


@given(plan=plans())
def test_files_outside_the_range_are_not_named(plan: Plan) -> None:
    for read_range in ranges_of(plan):
        if read_range.segment is not None:
            asked = next(one for one in plan.partitions if one.partition == read_range.partition)
            assert read_range.segment.first < asked.end and read_range.segment.end > asked.start


def test_a_large_file_is_cut_and_small_ones_share_a_task() -> None:
    limits = SplitSizes(cold_bytes=100 << 20, least_cold_bytes=1, aim=1)
    large = partition_of(0, 9000, [segment(0, 9000, size=300 << 20)], 9000)
    assert [len(split) for split in splits_of(ranges_of(plan_of(large)), limits)] == [1, 1, 1]
    small = partition_of(0, 40, [segment(n, n + 10, size=2 << 20) for n in range(0, 40, 10)], 40)
    assert [len(split) for split in splits_of(ranges_of(plan_of(small)), limits)] == [4]


def test_hot_ranges_between_segments_are_read_as_another_layer() -> None:
    one = PartitionPlan(
        partition=0,
        log_start=0,
        high_watermark=60,
        start=5,
        end=55,
        segments=(segment(0, 10),),
        hot_from=10,
        later=(segment(20, 30), segment(30, 40)),
    )
    found = ranges_of(plan_of(one, partition_of(0, 9, [], 0, number=1)))
    assert [(each.first, each.end, each.segment is None) for each in found if each.partition == 0] == [
        (5, 10, False),
        (10, 20, True),
        (20, 30, False),
        (30, 40, False),
        (40, 55, True),
    ]
    hot = [each for each in found if each.segment is None]
    assert hot_layers(hot) == [{0: (10, 20), 1: (0, 9)}, {0: (40, 55)}]
    assert hot_layers([*ranges_in({0: (1, 5)}), *ranges_in({0: (5, 7)})]) == [{0: (1, 7)}]
    assert hot_layers([]) == []


def test_a_file_is_cut_between_row_groups() -> None:
    limits = SplitSizes(cold_bytes=100 << 20, least_cold_bytes=1, aim=1)
    groups = (0, 1000, 2900, 3100, 7000)
    large = partition_of(0, 9000, [segment(0, 9000, size=300 << 20, groups=groups)], 9000)
    found = splits_of(ranges_of(plan_of(large)), limits)
    assert [(one.first, one.end) for (one,) in found] == [(0, 2900), (2900, 7000), (7000, 9000)]
    whole = partition_of(0, 9000, [segment(0, 9000, size=900 << 20, groups=(0,))], 9000)
    assert len(splits_of(ranges_of(plan_of(whole)), limits)) == 1


def test_a_small_hot_read_is_one_task_and_a_large_one_several() -> None:
    hot = plan_of(*(partition_of(0, 1000, [], 0, number=number) for number in range(4)))
    assert len(splits_of(ranges_of(hot))) == 1
    large = plan_of(*(partition_of(0, 1_000_000, [], 0, number=number) for number in range(4)))
    assert len(splits_of(ranges_of(large))) >= 16


def test_a_plan_with_a_hole_is_refused_s21() -> None:
    """Never short: neither between two segments, nor between the last one and the hot part."""
    holes = [
        partition_of(0, 30, [segment(0, 10), segment(20, 30)], 30),
        partition_of(0, 30, [segment(0, 10), segment(11, 30)], 30),
        partition_of(0, 30, [segment(0, 10)], 20),
        partition_of(0, 30, [segment(10, 30)], 30),
    ]
    for hole in holes:
        with pytest.raises(Unavailable, match="does not contain offset"):
            ranges_of(plan_of(hole))


def test_named_offsets_are_there_or_it_is_an_error() -> None:
    plan = plan_of(PartitionPlan(partition=0, log_start=5, high_watermark=20, start=5, end=20, segments=(), hot_from=5))
    require_whole(plan, {0: 5}, {0: 20})
    for starts, ends in (({0: 4}, None), (None, {0: 21}), ({0: 21}, None), (None, {0: 4})):
        with pytest.raises(OffsetOutOfRange, match="holds offsets 5 up to, not including, 20"):
            require_whole(plan, starts, ends)
    with pytest.raises(OffsetOutOfRange, match="no partition 3"):
        require_whole(plan, {3: 0}, None)


def test_ranges_become_pieces_without_a_segment() -> None:
    assert ranges_in({1: (4, 9), 0: (3, 3)}) == [ReadRange(partition=1, first=4, end=9)]
