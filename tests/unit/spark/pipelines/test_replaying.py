"""The shares of a replay on Spark, and the checks of its arguments. `test_spark_replay` runs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakelog.client.reading.limits import Time
from lakelog.client.values import ReplayedPartition
from lakelog.errors import InvalidRequest
from lakelog.spark.pipelines.replaying import BLOCK, PARTITIONS, ReplayJob, next_share, write_id_of


def part(partition: int, position: int, end: int) -> ReplayedPartition:
    return ReplayedPartition(partition, 0, position, end)


def test_a_share_ends_at_fixed_offsets_or_at_the_end_of_the_range() -> None:
    left = [part(0, 5, 3 * BLOCK), part(1, BLOCK - 1, BLOCK + 7), part(2, BLOCK, BLOCK + 7), part(3, 9, 9)]
    assert next_share(left) == {0: BLOCK, 1: BLOCK, 2: BLOCK + 7}
    assert next_share([part(0, 9, 9)]) == {}


def test_a_share_has_the_partitions_with_the_lowest_blocks() -> None:
    behind = PARTITIONS + 2
    left = [part(number, BLOCK * (number != behind), 9 * BLOCK) for number in range(PARTITIONS + 4)]
    assert next_share(left) == {behind: BLOCK, **dict.fromkeys(range(PARTITIONS - 1), 2 * BLOCK)}


def test_a_share_that_is_repeated_has_the_same_write_id() -> None:
    before = next_share([part(0, 0, 3 * BLOCK), part(1, 40, 50)])
    trimmed = next_share([part(0, 7, 3 * BLOCK), part(1, 41, 50), part(2, 0, 0)])
    assert write_id_of("copy", before) == write_id_of("copy", trimmed)
    following = next_share([part(0, BLOCK, 3 * BLOCK), part(1, 50, 50)])
    others = {write_id_of("copy", before), write_id_of("copy", following), write_id_of("other", before)}
    assert len(others) == 3


@pytest.mark.parametrize("until", ["1 day", "90min ago", timedelta(days=1)])
def test_a_replay_with_a_name_needs_a_fixed_end(until: Time) -> None:
    with pytest.raises(InvalidRequest, match="needs a fixed `until`"):
        ReplayJob(topic="orders", to="copies", until=until, name="copy")
    assert ReplayJob(topic="orders", to="copies", until=until).request().until is not None


def test_times_are_resolved() -> None:
    job = ReplayJob(topic="orders", to="copies", since="1 day", until="2026-01-31", name="copy")
    request = job.request()
    assert request.until == datetime(2026, 1, 31, tzinfo=UTC)
    assert request.since is not None and request.since < datetime.now(UTC) - timedelta(hours=23)


def test_replays_into_two_topics_have_positions_of_their_own() -> None:
    groups = {ReplayJob(topic="orders", to=to, name=name).request().group for to in ("a", "b.a") for name in ("x", "y")}
    assert groups == {"replay-x.a", "replay-x.b.a", "replay-y.a", "replay-y.b.a"}
    with pytest.raises(InvalidRequest, match="must not have a dot"):
        ReplayJob(topic="orders", to="a", name="x.b").request()


def test_arguments_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="cannot write to the topic that it reads"):
        ReplayJob(topic="orders", to="orders")
    with pytest.raises(InvalidRequest, match="rate"):
        ReplayJob(topic="orders", to="copies", rate=0)
