"""Answers are accepted once, repeated with the same reply, and refused without a change (S9, S10, S15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakelog.coordinator.leasing.closed_leases import DeliveryOutcome
from lakelog.coordinator.leasing.events import MessagesFinished
from lakelog.coordinator.leasing.operations import (
    Accepted,
    ExtendLease,
    FinishMessages,
    Operation,
    ReturnKind,
    ReturnMessages,
)
from lakelog.coordinator.leasing.state import FinishedCounts
from lakelog.coordinator.leasing.step import REMEMBER_MS
from lakelog.model.group import Exponential, Fixed, Order
from tests.unit.coordinator.lease_partition import LEASE, NOW, RETRY, Partition, acks, extends, nacks

Say = Callable[..., FinishMessages | ReturnMessages]

# Acks -----------------------------------------------------------------------------------------------------------------


def test_acks_in_any_order_and_the_committed_offset_is_the_finished_prefix_s16() -> None:
    partition = Partition("abcd")
    got = partition.take()
    committed = []
    for offset in (2, 0, 3, 1):
        partition.ack(got.token, offset)
        committed.append(partition.state.committed)
    assert committed == [0, 1, 1, 4]
    assert partition.state.counts == FinishedCounts(acked=4)
    assert not partition.state.leases


def test_acks_of_one_lease_in_one_step_are_one_event() -> None:
    partition = Partition("-" * 6)
    ann, bob = partition.take(3), partition.take(3, owner="bob")
    said = [acks(ann.token, 0), acks(bob.token, 5, owner="bob"), acks(ann.token, 1), acks(bob.token, 4, owner="bob")]
    taken = partition.step(*said, acks(ann.token, 2))
    assert taken.events == [
        MessagesFinished(bob.token, DeliveryOutcome.ACKED, [4, 6]),
        MessagesFinished(ann.token, DeliveryOutcome.ACKED, [0, 3]),
    ]
    assert taken.replies == [Accepted()] * 5


def test_ranges_may_overlap_and_come_in_any_order() -> None:
    partition = Partition("-" * 6)
    got = partition.take()
    assert partition.do(FinishMessages(owner="ann", token=got.token, ranges=[(3, 5), (0, 2), (1, 4)])) == Accepted()
    assert (partition.state.counts.acked, partition.state.committed) == (5, 5)


def test_ack_through_takes_all_open_ones_up_to_the_offset() -> None:
    partition = Partition("abcaab")
    got = partition.take()
    partition.ack(got.token, 1)
    assert partition.do(acks(got.token, 3, through=True)) == Accepted()
    assert (list(partition.state.leases[got.token].open), partition.state.counts.acked) == ([4, 5], 4)
    assert partition.do(acks(got.token, 3, through=True)) == Accepted()
    partition.nack(got.token, 5)
    assert partition.do(acks(None, 4, through=True)) == Accepted()
    assert partition.do(acks(got.token, 5, through=True)) == Accepted(), "closed, and nothing below was lost"


def test_ack_through_of_a_lease_that_ended_otherwise_is_refused() -> None:
    partition = Partition("abcd")
    lost, released = partition.take(2), partition.take(1)
    partition.release(released.token, 2)
    partition.ack(lost.token, 0)
    partition.lose()
    assert partition.refusal(acks(lost.token, 1, through=True)) == "lease_lost"
    assert partition.refusal(acks(released.token, 2, through=True)) == "lease_lost"


def test_a_discarded_message_is_counted_as_such() -> None:
    partition = Partition("a")
    got = partition.take()
    assert partition.do(acks(got.token, 0, discard=True)) == Accepted()
    assert partition.state.counts == FinishedCounts(discarded=1)
    assert partition.refusal(acks(got.token, 0)) == "lease_lost", "it was not acked"


@pytest.mark.parametrize("say", [acks, nacks], ids=["ack", "nack"])
@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
def test_a_later_message_of_a_key_is_not_answered_before_an_earlier_one_s15(order: Order, say: Say) -> None:
    partition = Partition("aba", order=order)
    got = partition.take()
    assert partition.refusal(say(got.token, 2)) == "out_of_order"
    assert isinstance(partition.do(say(got.token, 0, 1, 2)), Accepted)


def test_without_order_a_later_message_may_be_acked_first() -> None:
    partition = Partition("aa", order=Order.NONE)
    partition.ack(partition.take().token, 1)


# Nacks and releases ---------------------------------------------------------------------------------------------------


def test_a_nack_waits_as_the_policy_says_or_as_asked() -> None:
    partition = Partition("ab", retries=Exponential(max=3, base_seconds=2, jitter=0.5))
    got = partition.take()
    partition.nack(got.token, 0)
    partition.nack(got.token, 1, delay_ms=7)
    assert [each.due_ms - NOW for each in partition.state.waiting.values()] == [1500, 7]


def test_a_nack_says_when_the_message_is_due_again_and_how_many_attempts_there_are() -> None:
    partition = Partition("ab", retries=Fixed(max=1, seconds=2))
    got = partition.take()
    said = nacks(got.token, 0, 1)
    assert partition.do(said) == Accepted(dead=[], retry_in_ms=2000, max_attempts=2)
    partition.now += 1500
    assert partition.do(said) == Accepted(dead=[], retry_in_ms=500, max_attempts=2), "a repeat counts from now"
    partition.change(retries=Fixed(max=5, seconds=9))
    partition.now += 500
    got = partition.take(1)
    assert partition.do(nacks(got.token, 0)) == Accepted(dead=[], retry_in_ms=9000, max_attempts=6), (
        "as the group is now"
    )
    partition.change(retries=Fixed(max=0))
    got = partition.take(1)
    assert partition.do(nacks(got.token, 1)) == Accepted(dead=[1], max_attempts=1)


def test_a_nack_gives_back_later_messages_of_its_key_uncounted_s12() -> None:
    partition = Partition("abaa")
    got = partition.take()
    partition.nack(got.token, 0, 2)
    assert list(partition.state.leases[got.token].open) == [1]
    assert partition.state.skipped == {ord("a"): [2, 3]}
    assert [partition.state.failures(offset) for offset in (0, 2, 3)] == [1, 0, 0]
    assert partition.nack(got.token, 0, 2) == [], "the same again"
    assert partition.refusal(acks(got.token, 2)) == "lease_lost"


def test_a_message_dies_when_it_failed_once_more_than_it_may_be_retried() -> None:
    partition = Partition("aa", retries=Fixed(max=2, seconds=0))
    dead = []
    for _ in range(3):
        dead.append(partition.nack(partition.take(1).token, 0, reason="no such thing"))
    assert dead == [[], [], [0]]
    assert partition.last is not None
    [death] = partition.last.dead_messages
    assert (death.offset, death.deliveries, death.failures) == (0, 3, 3)
    assert (death.reason, death.owner, death.epoch) == ("no such thing", "ann", 0)
    assert partition.state.counts == FinishedCounts(dead=1)
    assert partition.offsets() == [1], "a dead letter frees its key"


def test_when_an_earlier_one_dies_the_next_of_the_key_is_nacked_by_itself() -> None:
    partition = Partition("aaa", retries=Fixed(max=1, seconds=0))
    partition.nack(partition.take(1).token, 0)
    got = partition.take(1)
    assert list(got.offsets) == [0]
    partition.ack(got.token, 0)
    got = partition.take()
    assert partition.nack(got.token, 1, 2, kind=ReturnKind.FATAL_NACK) == [1, 2]
    assert partition.state.counts == FinishedCounts(acked=1, dead=2)


def test_a_fatal_nack_dies_at_once_and_a_repeat_says_so_again() -> None:
    partition = Partition("ab", retries=Fixed(max=9))
    got = partition.take()
    for _ in range(2):
        assert partition.nack(got.token, 0, kind=ReturnKind.FATAL_NACK) == [0]
    partition.ack(got.token, 1)
    assert partition.nack(got.token, 0, kind=ReturnKind.FATAL_NACK) == [0], "also once the lease is closed"
    assert partition.nack(None, 0, kind=ReturnKind.FATAL_NACK) == [0]
    assert partition.state.counts == FinishedCounts(acked=1, dead=1)


def test_a_nacked_message_was_not_given_up() -> None:
    partition = Partition("ab", retries=Fixed(max=9))
    got = partition.take()
    partition.nack(got.token, 0)
    assert partition.refusal(nacks(got.token, 0, kind=ReturnKind.FATAL_NACK)) == "lease_lost"


def test_without_dead_letters_it_ends_as_discarded() -> None:
    partition = Partition("a", dead_letter=False)
    assert partition.nack(partition.take().token, 0, kind=ReturnKind.FATAL_NACK) == [0]
    assert partition.last is not None
    assert (partition.last.dead_messages, partition.state.counts) == ([], FinishedCounts(discarded=1))


def test_a_release_counts_no_failure_and_is_due_at_once() -> None:
    partition = Partition("ab", retries=Fixed(max=0))
    got = partition.take()
    partition.release(got.token, 0, 1)
    again = partition.take()
    assert (list(again.offsets), again.deliveries, again.failures) == ([0, 1], {0: 2, 1: 2}, {})


def test_a_release_takes_later_messages_of_the_key_along_s15() -> None:
    """Otherwise the later one could be acked while another owner holds the earlier one."""
    partition = Partition("aab")
    got = partition.take()
    partition.release(got.token, 0)
    assert list(partition.state.leases[got.token].open) == [2]
    assert (list(partition.state.waiting), partition.state.skipped) == ([0], {ord("a"): [1]})
    assert partition.refusal(acks(got.token, 1)) == "lease_lost"


def test_a_release_of_a_later_message_leaves_the_earlier_one_open() -> None:
    partition = Partition("aaa")
    got = partition.take()
    partition.release(got.token, 1)
    assert list(partition.state.leases[got.token].open) == [0]
    assert partition.offsets(owner="bob") == []
    partition.ack(got.token, 0)
    assert partition.offsets(owner="bob") == [1, 2]


# Lost answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_token", [True, False])
@pytest.mark.parametrize("left_open", [True, False])
@pytest.mark.parametrize(
    "say",
    [acks, nacks, lambda *said, **more: nacks(*said, kind=ReturnKind.RELEASE, **more)],
    ids=["ack", "nack", "release"],
)
def test_a_repeated_answer_gets_the_same_reply_for_a_minute(say: Say, left_open: bool, with_token: bool) -> None:
    partition = Partition("abc")
    got = partition.take(2 if left_open else 1, lease_ms=10 * REMEMBER_MS)
    said: Operation = say(got.token if with_token else None, 0)
    first = partition.do(said)
    assert isinstance(first, Accepted) and not first.dead
    counts = partition.state.counts
    partition.now += REMEMBER_MS
    taken = partition.step(said)
    left = None if first.retry_in_ms is None else 0
    assert (taken.replies, taken.events) == ([replace(first, retry_in_ms=left)], [])
    assert partition.state.counts == counts


@pytest.mark.parametrize("has_expired", [True, False])
@pytest.mark.parametrize("with_token", [True, False])
@pytest.mark.parametrize("number", range(6))
def test_a_repeated_answer_gets_the_same_reply_after_the_end_of_its_lease_s9(
    number: int, with_token: bool, has_expired: bool
) -> None:
    """Whether or not a step has noticed that the lease has ended: what it finished stays finished."""
    partition = Partition("abc", retries=Fixed(max=9))
    got = partition.take()
    said = answers(got.token if with_token else None, "ann")[number]
    first = partition.do(said)
    assert isinstance(first, Accepted)
    partition.now += LEASE
    if has_expired:
        partition.step()
    counts = partition.state.counts
    again = partition.do(said)
    assert isinstance(again, Accepted) and again.dead == first.dead
    assert partition.state.counts == counts
    other = acks(got.token, 1) if with_token else acks(None, 1)
    assert partition.refusal(other) == "lease_lost", "what it did not say in time is refused"


def test_a_repeated_ack_through_is_refused_if_the_lease_ended_with_messages_below_it_s9() -> None:
    partition = Partition("abc")
    got = partition.take()
    partition.ack(got.token, 0)
    partition.now += LEASE
    assert getattr(partition.do(acks(got.token, 1, through=True)), "code", None) == "lease_lost"


def test_a_nack_is_recognised_though_another_owner_has_acked_the_message_since() -> None:
    partition = Partition("a")
    got = partition.take()
    partition.nack(got.token, 0)
    partition.now += RETRY
    partition.ack(partition.take(owner="bob").token, 0, owner="bob")
    assert partition.nack(None, 0) == []
    assert partition.refusal(acks(None, 0)) == "lease_lost"


# Refusals -------------------------------------------------------------------------------------------------------------


def answers(token: int | None, owner: str) -> list[Operation]:
    return [
        acks(token, 0, owner=owner),
        acks(token, 0, owner=owner, discard=True),
        acks(token, 0, owner=owner, through=True),
        *(nacks(token, 0, owner=owner, kind=kind) for kind in ReturnKind),
        extends(token, owner=owner, offset=0),
    ]


def test_a_stale_token_is_refused_and_changes_nothing_s9() -> None:
    partition = Partition("ab")
    old = partition.take(2)
    partition.lose()
    new = partition.take(1)
    assert new.token > old.token
    assert [partition.refusal(each) for each in answers(old.token, "ann")] == ["lease_lost"] * 7
    assert [partition.refusal(each) for each in answers(999, "ann")] == ["lease_lost"] * 7


def test_a_lease_that_is_over_is_refused_though_nobody_has_looked_yet_s9() -> None:
    partition = Partition("a")
    got = partition.take()
    partition.now += LEASE
    for said in answers(got.token, "ann"):
        before = partition.state.counts
        taken = partition.step(said)
        assert getattr(taken.replies[0], "code", None) == "lease_lost"
        assert partition.state.counts == before
    assert (list(partition.state.waiting), partition.state.failures(0)) == ([0], 0)


def test_what_came_back_by_the_end_of_a_lease_was_not_released_s9() -> None:
    partition = Partition("aa")
    got = partition.take()
    partition.lose()
    for offset in (0, 1):
        for kind in ReturnKind:
            assert partition.refusal(nacks(got.token, offset, kind=kind)) == "lease_lost"


def test_another_owner_is_refused_and_changes_nothing_s9() -> None:
    partition = Partition("ab")
    got = partition.take(1)
    for token in (got.token, None):
        assert [partition.refusal(each) for each in answers(token, "eve")] == ["not_owner"] * 7


def test_an_old_generation_is_refused_and_changes_nothing_s9_s17() -> None:
    partition = Partition("ab")
    got = partition.take(1, generation=5)
    assert partition.state.generation == 5
    assert partition.refusal(acks(got.token, 0, generation=4)) == "stale_generation"
    assert partition.refusal(nacks(got.token, 0, generation=4)) == "stale_generation"
    assert partition.refusal(extends(got.token, generation=4)) == "stale_generation"
    assert partition.do(acks(got.token, 0, generation=6)) == Accepted()
    assert partition.state.generation == 6


def test_a_refused_call_does_not_raise_the_generation_s9() -> None:
    partition = Partition("a")
    assert partition.refusal(acks(7, 0, generation=10**6)) == "lease_lost"


def test_messages_that_the_lease_does_not_have_are_refused_whole() -> None:
    partition = Partition("abc")
    got = partition.take(2)
    assert partition.refusal(acks(got.token, 0, 2)) == "lease_lost"
    assert partition.refusal(FinishMessages(owner="ann", token=got.token, ranges=[(0, 10**15)])) == "lease_lost"
    partition.ack(got.token, 0, 1)
    assert partition.refusal(FinishMessages(owner="ann", token=got.token, ranges=[(0, 10**15)])) == "lease_lost"
    assert partition.refusal(acks(got.token, 1, 2)) == "lease_lost"


@pytest.mark.parametrize("through", [True, False])
def test_an_answer_has_to_say_about_what(through: bool) -> None:
    partition = Partition("a")
    got = partition.take()
    for token in (got.token, None):
        assert partition.refusal(acks(token, through=through)) == "invalid_request"
        assert partition.refusal(nacks(token)) == "invalid_request"
    assert partition.refusal(extends(None)) == "invalid_request"


def test_an_extend_may_name_a_message_instead_of_its_lease() -> None:
    partition = Partition("ab")
    partition.take()
    partition.now += 10
    assert partition.do(ExtendLease(owner="ann", token=None, lease_ms=LEASE, offset=1)).until_ms == NOW + 10 + LEASE
