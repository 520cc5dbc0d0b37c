"""Incidents: one for each delivery that did not end well, and one for the end of a message that had one."""

from __future__ import annotations

from lakelog.coordinator.leasing.codec import decode_state, encode_state
from lakelog.coordinator.leasing.incidents import LOST
from lakelog.coordinator.leasing.operations import ReturnKind
from lakelog.model.group import Fixed
from lakelog.model.incident import Incident, IncidentKind
from tests.unit.coordinator.lease_partition import LEASE, NOW, RETRY, Partition, acks, nacks

FAILED, LOST_KIND, DEAD, ACKED, DISCARDED = (
    IncidentKind.FAILED,
    IncidentKind.LOST,
    IncidentKind.DEAD,
    IncidentKind.ACKED,
    IncidentKind.DISCARDED,
)


def noted(partition: Partition) -> list[tuple[IncidentKind, int, int, int]]:
    """Return the kind, offset, deliveries and failures of the incidents of the last step."""
    assert partition.last is not None
    return [(each.kind, each.offset, each.deliveries, each.failures) for each in partition.last.incidents]


def test_a_message_that_is_acked_at_its_first_delivery_has_no_incident() -> None:
    partition = Partition("abcd")
    token = partition.take().token
    partition.ack(token, 0, 1)
    assert noted(partition) == []
    partition.do(acks(token, 2, 3, discard=True))
    assert noted(partition) == []


def test_a_failure_a_second_failure_and_the_ack_of_the_third_delivery() -> None:
    partition = Partition("a", retries=Fixed(max=2, seconds=RETRY / 1000))
    partition.nack(partition.take().token, 0, reason="ValueError: x", traceback="in pay")
    assert partition.last is not None
    assert partition.last.incidents == [
        Incident(
            kind=FAILED,
            offset=0,
            epoch=0,
            deliveries=1,
            failures=1,
            owner="ann",
            leased_ms=NOW,
            due_ms=NOW + RETRY,
            reason="ValueError: x",
            traceback="in pay",
        )
    ]
    partition.now += RETRY
    partition.nack(partition.take(owner="bob").token, 0, owner="bob", delay_ms=0)
    assert noted(partition) == [(FAILED, 0, 2, 2)]
    partition.ack(partition.take().token, 0)
    assert noted(partition) == [(ACKED, 0, 3, 2)]


def test_the_last_failure_is_the_death_and_nothing_else() -> None:
    partition = Partition("ab", retries=Fixed(max=0))
    partition.nack(partition.take().token, 0, 1, reason="E: x")
    assert noted(partition) == [(DEAD, 0, 1, 1), (DEAD, 1, 1, 1)]
    keeps_none = Partition("a", retries=Fixed(max=5), dead_letter=False)
    keeps_none.do(nacks(keeps_none.take().token, 0, kind=ReturnKind.FATAL_NACK, reason="E: x"))
    assert noted(keeps_none) == [(DISCARDED, 0, 1, 1)]
    assert keeps_none.last is not None and keeps_none.last.dead_messages == []


def test_all_messages_of_a_lost_lease_are_lost_and_the_ack_of_a_suspect_ends_it() -> None:
    partition = Partition("abab")
    partition.take(3)
    partition.lose()
    assert noted(partition) == [(LOST_KIND, 0, 1, 0), (LOST_KIND, 1, 1, 0), (LOST_KIND, 2, 1, 0)]
    assert partition.last is not None
    assert [(each.owner, each.reason) for each in partition.last.incidents] == [("ann", LOST)] * 3
    suspect = partition.take(1, owner="bob")
    assert suspect.suspect
    partition.ack(suspect.token, 0, owner="bob")
    assert noted(partition) == [(ACKED, 0, 2, 0)]


def test_a_lost_message_that_is_delivered_together_with_others_has_a_row_for_its_ack() -> None:
    partition = Partition("aab")
    partition.take(2)
    partition.lose()
    suspect = partition.take(1, owner="bob")
    partition.ack(suspect.token, 0, owner="bob")
    later = partition.take(2, owner="bob")
    assert not later.suspect and list(later.offsets) == [1, 2]
    partition.state = decode_state(encode_state(partition.state))
    partition.ack(later.token, 1, 2, owner="bob")
    assert noted(partition) == [(ACKED, 1, 2, 0)], "its first delivery was lost behind an earlier message of its key"


def test_a_suspect_that_is_released_has_a_row_for_its_ack() -> None:
    partition = Partition("a")
    partition.take()
    partition.lose()
    partition.release(partition.take(1, owner="bob").token, 0, owner="bob")
    partition.state = decode_state(encode_state(partition.state))
    found = partition.take(1, owner="bob")
    assert not found.suspect
    partition.ack(found.token, 0, owner="bob")
    assert noted(partition) == [(ACKED, 0, 3, 0)]


def test_a_message_that_ends_its_owner_alone_dies_with_one_incident() -> None:
    partition = Partition("a", retries=Fixed(max=0))
    partition.take()
    partition.lose()
    partition.take(owner="bob")
    partition.now += LEASE
    partition.step()
    assert noted(partition) == [(DEAD, 0, 2, 1)], "and is not lost as well"


def test_a_released_message_has_no_incident() -> None:
    partition = Partition("a")
    partition.release(partition.take().token, 0)
    partition.ack(partition.take().token, 0)
    assert noted(partition) == []


def test_only_those_of_many_acked_messages_that_had_failed_are_noted() -> None:
    partition = Partition("a" + "-" * 40, retries=Fixed(max=3))
    token = partition.take(1).token
    partition.nack(token, 0, delay_ms=0)
    lease = partition.take(41)
    partition.ack(lease.token, *lease.offsets)
    assert noted(partition) == [(ACKED, 0, 2, 1)]
    several = Partition("-" * 9, retries=Fixed(max=3))
    several.nack(several.take().token, *range(9), delay_ms=0)
    lease = several.take()
    several.ack(lease.token, 4)
    assert noted(several) == [(ACKED, 4, 2, 1)]


def test_a_refused_or_repeated_answer_notes_nothing() -> None:
    partition = Partition("ab", retries=Fixed(max=3))
    token = partition.take().token
    partition.nack(token, 0)
    partition.nack(token, 0)
    assert noted(partition) == []
    assert partition.refusal(nacks(99, 1)) == "lease_lost"
    assert noted(partition) == []
