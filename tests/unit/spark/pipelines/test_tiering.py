"""The pure parts of tiering: in which order ranges are stored, and what tasks answer."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.lake import TierRange
from lakelog.model.segment import Segment
from lakelog.spark.pipelines.tasks import decoded, encoded
from lakelog.spark.pipelines.tier_tasks import TierResult
from lakelog.spark.pipelines.tiering import waves

NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def segment(partition: int, first: int) -> Segment:
    return Segment(
        partition=partition,
        first=first,
        end=first + 10,
        path=f"e1/t2/p{partition}/{first}",
        bytes=99,
        file_hash="ab",
        content_hash="cd",
        first_at=NOW,
        last_at=NOW,
        epoch=3,
    )


def ok(partition: int, first: int) -> TierResult:
    return TierResult(segment=segment(partition, first))


def damaged(partition: int, first: int) -> TierResult:
    return TierResult(segment=segment(partition, first), error="It is damaged.", is_damaged=True)


def unread(partition: int, first: int) -> TierResult:
    return TierResult(segment=segment(partition, first), error="The store is away.")


def test_an_outcome_comes_back_from_a_task_as_it_was() -> None:
    for outcome in (ok(3, 10), damaged(0, 0), unread(1, 5), TierResult(error="ä: no range")):
        assert decoded(encoded(outcome), TierResult) == outcome


@given(st.lists(st.integers(0, 6), max_size=8), st.integers(1, 9))
def test_waves_hold_each_range_once_and_keep_a_partitions_order(counts: list[int], size: int) -> None:
    """S20: a segment can only be registered behind the one before it."""
    ranges = [
        TierRange(partition=partition, first=10 * n, end=10 * n + 10, bytes=5)
        for partition, count in enumerate(counts)
        for n in range(count)
    ]
    found = list(waves(reversed(ranges), size))
    assert all(1 <= len(wave) <= size for wave in found)
    flat = [each for wave in found for each in wave]
    assert sorted(flat, key=lambda each: (each.partition, each.first)) == ranges
    for partition in range(len(counts)):
        firsts = [each.first for each in flat if each.partition == partition]
        assert firsts == sorted(firsts)


def test_many_partitions_share_a_wave() -> None:
    ranges = [TierRange(partition=p, first=n, end=n + 1, bytes=1) for p in range(3) for n in range(2)]
    first, second = waves(ranges, 3)
    assert [each.partition for each in first] == [each.partition for each in second] == [0, 1, 2]
