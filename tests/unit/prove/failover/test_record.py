"""The verdict about promotions: what the record and the final log must have in common."""

from __future__ import annotations

import json

import pytest

from prove.failover.command import reported_losses
from prove.failover.record import FailoverRecord, judge, number_of, parse, value_of

A, B, C = (number_of(0, index) for index in range(3))


def recorded(*acked: int, seen: tuple[int, ...] = (), read: tuple[int, ...] = ()) -> FailoverRecord:
    """A record of one partition: messages acknowledged in order, and seen by workers and readers in order."""
    record = FailoverRecord(partitions=1)
    record.published(1.0, 2.0, [(number, 0, offset) for offset, number in enumerate(acked)])
    record.saw([(0, offset, number) for offset, number in enumerate(seen or acked)], is_worker=True)
    record.saw([(0, offset, number) for offset, number in enumerate(read)], is_worker=False)
    return record


def test_a_run_without_losses_is_valid() -> None:
    assert judge(recorded(A, B, read=(A, B)), [[A, B]], {}, is_synchronous=True).violations == []


def test_S1_a_loss_with_a_synchronous_standby_is_found() -> None:
    verdict = judge(recorded(A, B), [[A]], {0: 1}, is_synchronous=True)
    assert verdict.lost == {0: 1}
    assert verdict.violations == ["acknowledged messages were lost: {0: 1}"]


@pytest.mark.parametrize("reported", [{}, {0: 2}, {1: 1}])
def test_a_loss_must_be_reported_exactly(reported: dict[int, int]) -> None:
    assert judge(recorded(A, B), [[A]], {0: 1}, is_synchronous=False).violations == []
    (found,) = judge(recorded(A, B), [[A]], reported, is_synchronous=False).violations
    assert "reported by servers" in found


def test_S3_other_content_under_an_offset_is_valid_only_once_after_a_loss() -> None:
    record = recorded(A, B)
    record.saw([(0, 1, C)], is_worker=True)
    record.published(3.0, 4.0, [(C, 0, 1)])
    assert judge(record, [[A, C]], {0: 1}, is_synchronous=False).violations == []
    record.saw([(0, 1, B)], is_worker=True)
    record.saw([(0, 1, C)], is_worker=True)
    found = judge(record, [[A, C]], {0: 1}, is_synchronous=False).violations
    assert [each for each in found if "0-1 at 0-1 again after 0-2" in each]
    assert [each for each in found if "0-1 at 0-1 after 0-2, which is not lost" in each]


def test_L1_what_no_worker_got_is_found() -> None:
    (found,) = judge(recorded(A, B, seen=(A,)), [[A, B]], {}, is_synchronous=True).violations
    assert found == "1 messages of the log were not delivered to a worker"


def test_S2_a_message_at_another_place_is_found() -> None:
    found = judge(recorded(A, B, read=(A, B)), [[B, A]], {}, is_synchronous=True).violations
    assert "message 0-0 was acknowledged at (0, 0) and is at (0, 1)" in found
    assert "readers saw 0-0 at 0-0, and it is elsewhere" in found


def test_serving_counts_only_publishes_that_began_after_the_promotion() -> None:
    record = FailoverRecord(partitions=1)
    record.published(1.0, 9.0, [])
    assert record.serving_after(5.0) is None
    record.published(6.0, 6.5, [])
    assert record.serving_after(5.0) == 1.5


def test_numbers_are_values() -> None:
    assert parse(value_of(number_of(3, 70_000))) == number_of(3, 70_000)


def test_reported_losses_of_all_servers_are_added() -> None:
    lines = [json.dumps({"event": "messages_lost", "partition_id": 5 << 16 | 2, "messages": count}) for count in (3, 4)]
    assert reported_losses([f"{lines[0]}\n" + '{"event": "other"}\n', lines[1]]) == {2: 7}
