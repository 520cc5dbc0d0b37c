"""The snapshots that bring a table to its topic: what is appended, replaced and removed, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime

from lakelog.engine.lake.iceberg_steps import steps_of
from lakelog.model.iceberg import IcebergStep
from lakelog.model.segment import Segment
from lakelog.segments.layout import segment_path

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def segment(first: int, end: int, partition: int = 0) -> Segment:
    return Segment(
        partition=partition,
        first=first,
        end=end,
        bytes=100,
        file_hash="00",
        content_hash="00",
        first_at=NOON,
        last_at=NOON,
        epoch=0,
        path=segment_path(1, 1, partition, first, end),
    )


def told(step: IcebergStep) -> tuple[str, list[tuple[int, int]], int]:
    return step.operation.value, [(each.first, each.end) for each in step.added], len(step.removed)


def paths(*segments: Segment) -> list[str]:
    return [each.path for each in segments]


def test_new_segments_are_appended_in_order_up_to_the_limit() -> None:
    wanted = [segment(10, 20), segment(0, 10), segment(0, 5, partition=1)]
    (step,), rest = steps_of([], wanted, limit=2)
    assert told(step) == ("append", [(0, 10), (10, 20)], 0)
    assert rest == 1
    assert step.covered == {0: [(0, 20)]}
    (step,), rest = steps_of(paths(*wanted[:2]), wanted)
    assert (told(step), rest) == (("append", [(0, 5)], 0), 0)
    assert step.covered == {0: [(0, 20)], 1: [(0, 5)]}


def test_a_table_that_has_all_segments_needs_no_snapshot() -> None:
    wanted = [segment(0, 10), segment(10, 20)]
    assert steps_of(paths(*wanted), wanted) == ([], 0)


def test_a_compacted_file_replaces_its_inputs_in_the_snapshot_that_adds_it() -> None:
    old = [segment(0, 10), segment(10, 20), segment(20, 30)]
    new = segment(0, 20)
    (step,), _ = steps_of(paths(*old), [new, old[2]])
    assert told(step) == ("replace", [(0, 20)], 2)
    assert set(step.removed) == set(paths(*old[:2]))
    assert step.covered == {0: [(0, 30)]}


def test_a_compacted_file_with_more_than_the_table_has_is_an_overwrite() -> None:
    """The second input was verified and compacted between two runs."""
    old = segment(0, 10)
    (step,), _ = steps_of(paths(old), [segment(0, 20)])
    assert told(step) == ("overwrite", [(0, 20)], 1)


def test_files_below_the_log_start_leave_before_new_ones_arrive() -> None:
    old = [segment(0, 10), segment(10, 20), segment(0, 7, partition=1)]
    steps, _ = steps_of(paths(*old), [old[1], segment(20, 30)])
    assert [told(step) for step in steps] == [("delete", [], 2), ("append", [(20, 30)], 0)]
    assert [step.covered for step in steps] == [{0: [(10, 20)]}, {0: [(10, 30)]}]


def test_all_of_it_at_once_is_one_snapshot_of_each_kind() -> None:
    old = [segment(0, 10), segment(10, 20), segment(20, 30), segment(40, 50)]
    wanted = [segment(10, 30), old[3], segment(50, 60)]
    steps, _ = steps_of(paths(*old), wanted)
    assert [told(step) for step in steps] == [
        ("replace", [(10, 30)], 2),
        ("delete", [], 1),
        ("append", [(50, 60)], 0),
    ]
    assert steps[-1].covered == {0: [(10, 30), (40, 60)]}


def test_files_that_leave_count_towards_the_limit() -> None:
    """A commit has a largest number of paths, and a purge removes all files of a long history at once."""
    live = [segment(n * 10, n * 10 + 10) for n in range(12)]
    wanted = [segment(0, 20), segment(20, 40)]
    left, turns = paths(*live), 0
    while True:
        steps, rest = steps_of(left, wanted, limit=5)
        assert sum(len(step.added) + len(step.removed) for step in steps) <= 5
        for step in steps:
            left = [path for path in left if path not in step.removed] + paths(*step.added)
        turns += 1
        if not rest:
            break
    assert (sorted(left), turns) == (sorted(paths(*wanted)), 4)


def test_a_compaction_of_more_files_than_the_limit_is_one_snapshot() -> None:
    old = [segment(n * 10, n * 10 + 10) for n in range(12)]
    (step,), rest = steps_of(paths(*old), [segment(0, 120), segment(120, 130)], limit=5)
    assert (told(step), rest) == (("replace", [(0, 120)], 12), 1)


def test_partitions_do_not_replace_each_other() -> None:
    old = segment(0, 10)
    steps, _ = steps_of(paths(old), [segment(0, 10, partition=1)])
    assert [told(step) for step in steps] == [("delete", [], 1), ("append", [(0, 10)], 0)]
