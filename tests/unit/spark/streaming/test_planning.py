"""What a stream reads next, and whether checkpoint and group agree."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import InvalidRequest, PositionRefused
from lakelog.model.lake import Watermarks
from lakelog.model.seek import GroupPosition
from lakelog.spark.streaming.options import parse_stream_options
from lakelog.spark.streaming.planning import (
    Restart,
    StreamOffset,
    advance,
    begin_at,
    by_epoch,
    grown,
    message_limit,
    reconcile,
)

OFFSETS = st.dictionaries(st.integers(0, 20), st.integers(0, 10_000), max_size=8)


@given(begin=OFFSETS, end=OFFSETS)
def test_an_offset_is_the_same_text_after_its_way_through_a_checkpoint(
    begin: dict[int, int], end: dict[int, int]
) -> None:
    offset = StreamOffset(topic="orders", incarnation=7, begin=begin, end=end, epochs={1: 2})
    text = json.dumps(offset.to_json())
    again = StreamOffset.of(json.loads(text), "orders")
    assert again == offset
    assert json.dumps(again.to_json()) == text


def test_a_checkpoint_of_another_topic_or_version_is_refused() -> None:
    offset = StreamOffset(topic="orders", incarnation=7).to_json()
    with pytest.raises(InvalidRequest, match=r"'orders'.*'clicks'"):
        StreamOffset.of(offset, "clicks")
    with pytest.raises(InvalidRequest, match="version"):
        StreamOffset.of({**offset, "format": 2}, "orders")


@given(behind=OFFSETS, begin=st.integers(0, 100), limit=st.none() | st.integers(1, 20_000))
def test_s22_the_next_end_is_within_the_log_and_uses_up_the_limit(
    behind: dict[int, int], begin: int, limit: int | None
) -> None:
    starts = dict.fromkeys(behind, begin)
    ends = {partition: begin + count for partition, count in behind.items()}
    found = advance(starts, ends, limit)
    assert found.keys() == starts.keys()
    assert all(starts[partition] <= found[partition] <= ends[partition] for partition in found)
    total = sum(behind.values())
    assert sum(found.values()) - sum(starts.values()) == (total if limit is None else min(limit, total))


def test_a_limit_is_shared_by_what_partitions_have() -> None:
    assert advance({0: 0, 1: 0, 2: 5}, {0: 900, 1: 100, 2: 5}, 100) == {0: 90, 1: 10, 2: 5}


def test_a_limit_in_bytes_is_a_number_of_messages_of_the_average_size() -> None:
    """Partition 0 has messages of 10 bytes, partition 1 of 100, and partition 2 nothing to read."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    marks = Watermarks(
        incarnation=7, epoch=0, starts={}, ends={0: 200, 1: 50, 2: 5}, now=at, bytes={0: 2000, 1: 5000, 2: 9}
    )
    begin = {0: 100, 1: 40, 2: 5}
    assert message_limit(begin, marks, 1000, None) == 55
    assert message_limit(begin, marks, 1000, 20) == 20
    assert message_limit(begin, marks, 1, None) == 1
    assert message_limit(begin, marks, 2000, None) is None
    assert message_limit(begin, marks, None, 20) == 20
    assert message_limit(begin, replace(marks, bytes={}), 1, None) is None


def test_an_end_before_the_beginning_moves_nothing() -> None:
    """The target of an availableNow run may be older than a group's position."""
    assert advance({0: 10}, {0: 7}, None) == {0: 10}


def test_a_stream_begins_as_resolved_then_where_it_was_and_new_partitions_at_0() -> None:
    assert begin_at(StreamOffset(topic="t"), {0: 5, 1: 6}, {0: 9, 1: 9}) == {0: 5, 1: 6}
    known = StreamOffset(topic="t", incarnation=1, begin={0: 1}, end={0: 3})
    assert begin_at(known, {0: 5, 1: 6}, {0: 9, 1: 9}) == {0: 3, 1: 0}


def test_only_what_the_group_has_not_reached_is_committed_each_in_its_epoch() -> None:
    positions = {0: GroupPosition(0, 5, 0), 1: GroupPosition(1, 5, 2)}
    changed = grown(positions, {0: 5, 1: 7, 2: 0})
    assert changed == {1: 7, 2: 0}
    assert by_epoch(changed, positions) == {2: {1: 7}, 0: {2: 0}}


PLANNED = StreamOffset(topic="orders", incarnation=1, begin={0: 10}, end={0: 20}, epochs={0: 3})


def agree(positions: dict[int, GroupPosition], *, finished: bool = False, log_start: int = 0) -> None:
    reconcile("features", Restart(planned=PLANNED, finished=finished), positions, {0: log_start, 1: 0})


@pytest.mark.parametrize("offset", [10, 15, 20])
@pytest.mark.parametrize("finished", [True, False])
def test_a_group_within_the_last_planned_micro_batch_is_right(offset: int, finished: bool) -> None:
    agree(
        {0: GroupPosition(0, offset, 3), 1: GroupPosition(1, 0, 0)},
        finished=finished,
    )


@pytest.mark.parametrize(
    ("positions", "log_start", "said"),
    [
        ({0: 9}, 0, "offset 9 .*10 to 20.*moved the group.*--partition 0 --to 10"),
        ({0: 21}, 0, "offset 21 .*10 to 20.*new checkpoint"),
        ({0: 10, 1: 4}, 0, "offset 4 of partition 1.*is at 0:"),
        ({0: 25}, 24, "offset 25"),
    ],
)
def test_a_group_elsewhere_is_refused_naming_both_and_the_way_out(
    positions: dict[int, int], log_start: int, said: str
) -> None:
    with pytest.raises(PositionRefused, match=said):
        agree(
            {each: GroupPosition(each, offset, 0 if each else 3) for each, offset in positions.items()},
            log_start=log_start,
        )


def test_a_group_that_retention_moved_is_right() -> None:
    """The next plan decides about removed messages."""
    agree({0: GroupPosition(0, 25, 3)}, log_start=25)


@pytest.mark.parametrize(("finished", "on", "others"), [(True, 20, (10, 15)), (False, 10, (15, 20))])
def test_after_a_seek_the_group_is_exactly_where_the_query_goes_on(
    finished: bool, on: int, others: tuple[int, ...]
) -> None:
    agree({0: GroupPosition(0, on, 4)}, finished=finished)
    for offset in others:
        with pytest.raises(PositionRefused, match=f"--to {on}`"):
            agree({0: GroupPosition(0, offset, 4)}, finished=finished)


def test_options_are_parsed_whatever_their_case() -> None:
    options = parse_stream_options(
        {"TOPIC": "orders", "Group": "features", "maxmessagespertrigger": "5", "sessionMs": "2000"}
    )
    assert (options.topic, options.group, options.max_messages, options.session_ms) == ("orders", "features", 5, 2000)
    assert parse_stream_options({"topic": "orders", "startOffsets": '{"1": 4}'}).start_offsets == {1: 4}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "topic"),
        ({"topic": "orders", "grop": "x"}, "Did you mean `group`"),
        ({"topic": "orders", "start": "middle"}, "earliest, latest or a time"),
        ({"topic": "orders", "maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
        ({"topic": "orders", "maxBytesPerTrigger": "1 MB"}, "maxBytesPerTrigger"),
        ({"topic": "orders", "sessionMs": "soon"}, "sessionMs"),
        ({"topic": "orders", "failOnDataLoss": "no"}, "`failOnDataLoss` must be true or false, not 'no'"),
    ],
)
def test_wrong_options_say_what_is_accepted(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse_stream_options(options)
