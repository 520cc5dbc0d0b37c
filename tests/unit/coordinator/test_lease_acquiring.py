"""Who gets which messages: orders, retries, windows, filters, expiry of messages."""

from __future__ import annotations

import pytest

from lakelog.coordinator.leasing import events
from lakelog.coordinator.leasing.operations import AcquireMessages, NothingAvailable, ReturnKind
from lakelog.coordinator.leasing.state import FinishedCounts
from lakelog.model.group import Order
from tests.unit.coordinator.lease_partition import LEASE, NOW, RETRY, Partition, nacks


def test_a_lease_says_until_when_and_that_all_is_new() -> None:
    partition = Partition("abc")
    got = partition.take(2)
    assert (got.token, list(got.offsets), got.until_ms, got.suspect) == (1, [0, 1], NOW + LEASE, False)
    assert (got.deliveries, got.failures) == ({}, {})
    assert (partition.state.frontier, partition.state.committed, partition.state.open_count) == (2, 0, 2)


def test_tokens_rise_with_every_lease_and_over_a_redelivery_s8() -> None:
    partition = Partition("a")
    tokens = []
    for _ in range(3):
        got = partition.take()
        tokens.append(got.token)
        partition.release(got.token, 0)
    assert tokens == [1, 2, 3]


# Order ----------------------------------------------------------------------------------------------------------------


def test_messages_of_a_key_that_is_open_are_skipped_for_others_s15() -> None:
    partition = Partition("abaac")
    first = partition.take(1)
    assert partition.offsets(owner="bob") == [1, 4]
    assert partition.state.skipped == {ord("a"): [2, 3]}
    assert partition.offsets(owner="bob") == []
    partition.ack(first.token, 0)
    assert partition.state.has_ready()
    assert partition.offsets(owner="bob") == [2, 3]


def test_one_lease_may_have_several_of_a_key() -> None:
    assert Partition("aab").offsets() == [0, 1, 2]


def test_messages_without_a_key_are_independent_in_key_order() -> None:
    partition = Partition("---")
    assert [partition.offsets(1, owner=owner) for owner in ("ann", "bob", "cyd")] == [[0], [1], [2]]


def test_a_waiting_message_blocks_its_key_and_no_other_s15() -> None:
    partition = Partition("abab")
    got = partition.take(1)
    partition.nack(got.token, 0)
    assert partition.offsets() == [1, 3]
    partition.now += RETRY
    assert partition.offsets(owner="bob") == [0]


def test_partition_order_is_one_owner_at_a_time() -> None:
    partition = Partition("abc-", order=Order.PARTITION)
    got = partition.take(2)
    assert partition.offsets(owner="bob") == []
    partition.ack(got.token, 0)
    assert partition.offsets(owner="bob") == []
    partition.ack(got.token, 1)
    assert partition.offsets(owner="bob") == [2, 3]


def test_in_partition_order_a_nack_holds_up_everything_until_it_is_due() -> None:
    partition = Partition("abcd", order=Order.PARTITION)
    got = partition.take(3)
    partition.nack(got.token, 0)
    assert (list(partition.state.waiting), partition.state.skipped_count) == ([0], 2)
    assert partition.offsets() == []
    partition.now += RETRY
    again = partition.take()
    assert list(again.offsets) == [0]
    partition.ack(again.token, 0)
    assert partition.offsets() == [1, 2]


def test_without_order_a_key_blocks_nothing() -> None:
    partition = Partition("aaa", order=Order.NONE)
    assert [partition.offsets(1, owner=owner) for owner in ("ann", "bob")] == [[0], [1]]


# Retries --------------------------------------------------------------------------------------------------------------


def test_a_retry_is_not_delivered_before_it_is_due_s13() -> None:
    partition = Partition("a")
    partition.nack(partition.take().token, 0)
    partition.now += RETRY - 1
    assert partition.state.next_due_ms() == NOW + RETRY
    assert partition.offsets() == []
    partition.now += 1
    got = partition.take()
    assert (list(got.offsets), got.deliveries, got.failures) == ([0], {0: 2}, {0: 1})
    assert partition.last is not None
    assert partition.last.not_before_ms == NOW + RETRY, "written before that, it would be too early"


def test_retries_that_are_due_come_before_new_messages() -> None:
    partition = Partition("abcdef")
    partition.nack(partition.take(2).token, 0, 1, delay_ms=10)
    partition.now += 10
    assert partition.offsets(3) == [0, 1, 2]


def test_deliveries_count_releases_and_failures_do_not_s12() -> None:
    partition = Partition("a")
    for _ in range(5):
        partition.release(partition.take().token, 0)
    got = partition.take()
    assert (got.deliveries, got.failures) == ({0: 6}, {})


# Bounds ---------------------------------------------------------------------------------------------------------------


def test_the_window_bounds_what_is_leased_or_waits() -> None:
    partition = Partition("-" * 10, window=4)
    got = partition.take()
    assert list(got.offsets) == [0, 1, 2, 3]
    partition.nack(got.token, 0, 1)
    assert partition.offsets(owner="bob") == []
    partition.ack(got.token, 2)
    assert partition.offsets(owner="bob") == [4]


def test_a_retry_needs_no_new_place_in_the_window() -> None:
    partition = Partition("-" * 10, window=4)
    partition.nack(partition.take(2).token, 0, 1)
    partition.now += RETRY
    assert partition.offsets() == [0, 1, 2, 3]


def test_the_look_ahead_stops_the_frontier_and_forgets_nothing() -> None:
    partition = Partition("aaaaab", look_ahead=3)
    got = partition.take(1)
    assert partition.offsets(owner="bob") == []
    assert (partition.state.frontier, partition.state.skipped_count) == (4, 3)
    partition.ack(got.token, 0)
    assert partition.offsets(owner="bob") == [1, 2, 3]
    assert partition.offsets(owner="cyd") == [5]
    assert partition.state.skipped == {ord("a"): [4]}


def test_one_that_asks_for_none_or_of_a_paused_group_gets_nothing() -> None:
    partition = Partition("a")
    assert partition.do(AcquireMessages(owner="ann", max_messages=0, lease_ms=LEASE)) == NothingAvailable()
    partition.change(paused=True)
    assert partition.offsets() == []
    assert partition.last is not None
    assert not partition.last.events


def test_a_paused_group_still_takes_answers_and_expires_leases() -> None:
    partition = Partition("ab", window=5)
    first, _second = partition.take(1), partition.take(1, owner="bob")
    partition.change(paused=True)
    partition.ack(first.token, 0)
    partition.lose()
    assert (list(partition.state.waiting), partition.offsets()) == ([1], [])


# Passed over ----------------------------------------------------------------------------------------------------------


def test_filtered_messages_are_passed_over_and_counted() -> None:
    partition = Partition("abcd")
    partition.filtered = {0, 2}
    assert partition.offsets(2) == [1, 3]
    assert partition.state.counts == FinishedCounts(filtered=2)
    assert partition.state.committed == 1


def test_all_filtered_moves_the_committed_offset() -> None:
    partition = Partition("abcd")
    partition.filtered = {0, 1, 2, 3}
    assert partition.offsets() == []
    assert (partition.state.committed, partition.state.counts.filtered) == (4, 4)


@pytest.mark.parametrize("filtered", [set(), {2}], ids=["alone", "with a filter"])
def test_an_expired_message_is_passed_over_and_counted(filtered: set[int]) -> None:
    partition = Partition("abc")
    partition.filtered, partition.expires = filtered, {0: NOW - 7, 1: NOW + 1}
    assert partition.offsets(1) == [1]
    assert partition.state.counts == FinishedCounts(expired=1)
    assert partition.last is not None
    assert partition.last.not_before_ms == NOW - 7


def test_a_message_that_expires_while_it_waits_is_not_retried_and_frees_its_key() -> None:
    partition = Partition("aa")
    partition.expires = {0: NOW + 500}
    partition.nack(partition.take(1).token, 0)
    assert partition.offsets() == []
    partition.now += RETRY
    assert partition.offsets() == [1], "in the same call, without an extra wait"
    assert partition.state.counts == FinishedCounts(expired=1)


def test_a_message_that_expires_while_skipped_is_not_handed_out() -> None:
    partition = Partition("aaaa")
    partition.expires = {1: NOW + 500, 2: NOW + 500}
    got = partition.take(1)
    partition.change(look_ahead=2)
    assert partition.offsets(owner="bob") == []
    partition.now += 500
    partition.ack(got.token, 0)
    assert partition.offsets(owner="bob") == [3]
    assert partition.state.counts == FinishedCounts(acked=1, expired=2)


def test_a_suspect_that_expired_meanwhile_is_not_handed_out() -> None:
    partition = Partition("ab")
    partition.expires = {0: NOW + LEASE}
    partition.take(2)
    partition.lose()
    assert partition.offsets() == [1]
    assert (partition.state.counts.expired, partition.state.committed) == (1, 1)


# A lost answer --------------------------------------------------------------------------------------------------------


def test_a_repeated_take_gets_the_same_lease() -> None:
    partition = Partition("abcd")
    first = partition.take(2, request="r1")
    partition.now += 10
    assert partition.take(2, request="r1") == first
    assert partition.last is not None
    assert partition.last.events == [events.LeaseExtended(first.token, first.until_ms, False, reissued=True)]
    assert partition.take(2, request="r1") == first
    assert (partition.last.events, partition.last.not_after_ms) == ([], NOW + 10 + 5000)
    partition.ack(first.token, 0)
    assert list(partition.take(2, request="r1").offsets) == [1]
    assert partition.take(1, request="r2").token > first.token


def test_S8_what_was_told_again_is_not_given_back_by_a_call_that_failed() -> None:
    partition = Partition("ab")
    got = partition.take(2, request="r1")
    partition.take(2, request="r1")
    partition.do(nacks(got.token, 0, 1, kind=ReturnKind.RELEASE, orphaned=True))
    assert list(partition.state.leases[got.token].open) == [0, 1]
    partition.release(got.token, 0)
    assert list(partition.state.leases[got.token].open) == [1]


def test_a_repeat_by_another_owner_or_after_the_lease_is_a_new_request() -> None:
    partition = Partition("abcd")
    first = partition.take(1, request="r1")
    assert partition.take(1, owner="bob", request="r1").token != first.token
    partition.now += LEASE
    assert partition.take(1, request="r1").token > first.token


def test_a_repeated_take_near_the_end_of_its_lease_holds_only_before_it() -> None:
    partition = Partition("a")
    got = partition.take(request="r1")
    partition.now = got.until_ms - 1
    partition.take(request="r1")
    assert partition.last is not None
    assert partition.last.not_after_ms == got.until_ms - 1
