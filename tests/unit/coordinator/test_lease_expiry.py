"""Leases that are over: suspects, who counts as alone, and that innocents never die of their neighbours (S12)."""

from __future__ import annotations

from lakelog.coordinator.leasing.acquiring import ALONE_WITHIN_MS
from lakelog.coordinator.leasing.operations import DeadMessage
from lakelog.coordinator.leasing.state import FinishedCounts
from lakelog.model.group import Fixed, Order
from tests.unit.coordinator.lease_partition import LEASE, NOW, RETRY, Partition, acks, extends


def test_a_lease_is_over_at_its_end_and_not_before_s8() -> None:
    partition = Partition("a")
    partition.take()
    partition.now += LEASE - 1
    assert partition.offsets(owner="bob") == []
    partition.now += 1
    assert partition.offsets(owner="bob") == [0]
    assert partition.last is not None
    assert partition.last.not_before_ms == NOW + LEASE, "before that the first owner may still ack"


def test_what_a_lost_owner_held_is_suspect_and_handed_out_one_by_one() -> None:
    partition = Partition("abc")
    partition.take(3)
    partition.lose()
    assert partition.state.next_due_ms() == NOW + LEASE, "due at once"
    first = partition.take(100, owner="bob")
    assert (list(first.offsets), first.suspect, first.deliveries, first.failures) == ([0], True, {0: 2}, {})
    assert partition.offsets(owner="bob") == [], "a plain owner gets nothing else until then"
    assert partition.offsets(owner="cyd") == [1]


def test_a_plain_owner_gets_a_suspect_only_with_empty_hands() -> None:
    partition = Partition("abcd")
    partition.take(1, held_elsewhere=1)
    partition.lose()
    assert partition.offsets(1, owner="bob", held_elsewhere=1) == [1]
    assert partition.offsets(1, owner="bob") == [2], "it holds 1"
    assert partition.offsets(1, owner="cyd") == [0]


def test_L5_a_suspect_that_nobody_could_take_alone_goes_with_others_and_nothing_is_blamed() -> None:
    """Owners that always hold a message would let it wait forever."""
    partition = Partition("abcdefgh", retries=Fixed(max=0))
    partition.take(2)
    partition.lose()
    assert partition.offsets(1, owner="bob", held_elsewhere=1) == [2]
    partition.now += ALONE_WITHIN_MS - 1
    assert partition.offsets(1, owner="cyd", held_elsewhere=1) == [3]
    partition.now += 1
    got = partition.take(3, owner="cyd", held_elsewhere=1)
    assert (list(got.offsets), got.suspect, got.deliveries) == ([0, 1, 4], False, {0: 2, 1: 2})
    assert partition.last is not None and partition.last.not_before_ms == NOW + LEASE + ALONE_WITHIN_MS
    partition.lose()
    partition.take(1, owner="eve")
    assert partition.state.counts == FinishedCounts(), "no owner was alone with it"


def test_an_isolating_owner_gets_suspects_besides_others_each_in_a_lease_of_its_own() -> None:
    partition = Partition("abcd")
    partition.take(2)
    partition.lose()
    got = [partition.take(100, owner="sdk", isolates=True) for _ in range(3)]
    assert [(list(each.offsets), each.suspect) for each in got] == [([0], True), ([1], True), ([2, 3], False)]


def test_expiry_of_many_is_nobodys_failure_s12() -> None:
    partition = Partition("-" * 5, retries=Fixed(max=0))
    for _ in range(10):
        partition.take(100, owner="sdk", isolates=True)
        partition.lose()
    assert partition.state.counts == FinishedCounts()
    assert all(tally.failures == 0 for tally in partition.state.histories.values())


def test_the_one_that_kills_its_owners_dies_and_its_neighbours_do_not_s12() -> None:
    partition = Partition("abcde", retries=Fixed(max=2, seconds=1))
    deaths: list[DeadMessage] = []
    for _ in range(60):
        if partition.state.committed == 5:
            break
        got = partition.offsets(3, owner="http")
        assert partition.last is not None
        deaths += partition.last.dead_messages
        if 2 in got:
            partition.now += LEASE
            continue
        for offset in got:
            partition.ack(None, offset, owner="http")
        partition.now += RETRY
    assert partition.state.counts == FinishedCounts(acked=4, dead=1)
    assert [(death.offset, death.failures, death.deliveries) for death in deaths] == [(2, 3, 4)]
    assert deaths[0].owner == "http"


def test_a_suspect_in_a_plain_owners_hands_is_alone_at_once() -> None:
    partition = Partition("ab", retries=Fixed(max=1, seconds=2))
    partition.take(1)
    partition.lose()
    assert partition.state.failures(0) == 0, "it is unknown what else its owner held"
    partition.take(1)
    partition.lose()
    assert partition.state.failures(0) == 1
    assert partition.state.waiting[0].due_ms == partition.now + 2000, "as after a nack"
    assert partition.state.histories[0].suspect


def test_who_takes_more_is_no_longer_alone_with_what_is_no_suspect() -> None:
    partition = Partition("abc")
    got = partition.take(1, isolates=True)
    partition.do(extends(got.token, alone=True))
    partition.take(1, isolates=True)
    partition.lose()
    assert partition.state.failures(0) == partition.state.failures(1) == 0


def test_an_owner_that_isolates_is_not_alone_before_it_says_so() -> None:
    partition = Partition("a")
    for _ in range(3):
        partition.take(1, isolates=True)
        partition.lose()
    assert partition.state.failures(0) == 0


def test_an_isolating_owner_says_when_it_is_alone() -> None:
    partition = Partition("a", retries=Fixed(max=0))
    partition.take(1, held_elsewhere=1)
    partition.lose()
    got = partition.take(owner="sdk", isolates=True)
    partition.do(extends(got.token, owner="sdk", alone=True))
    partition.now = got.until_ms
    taken = partition.step()
    assert partition.state.counts == FinishedCounts(dead=1)
    [death] = taken.dead_messages
    assert (death.offset, death.failures, death.deliveries, death.epoch) == (0, 1, 2, 0)
    assert "sdk" in death.reason


def test_an_isolating_owner_that_gets_more_is_still_alone_with_its_suspect() -> None:
    partition = Partition("abc", retries=Fixed(max=0))
    partition.take(1, held_elsewhere=1)
    partition.lose()
    got = partition.take(owner="sdk", isolates=True)
    partition.do(extends(got.token, owner="sdk", alone=True))
    partition.take(owner="sdk", isolates=True)
    partition.lose()
    assert partition.state.counts == FinishedCounts(dead=1)
    assert partition.state.failures(1) == partition.state.failures(2) == 0


def test_nobody_is_alone_with_several_messages_or_with_two_leases_s12() -> None:
    partition = Partition("abcd", retries=Fixed(max=0))
    many = partition.take(2, isolates=True)
    partition.do(extends(many.token, alone=True))
    first, second = (partition.take(1, isolates=True) for _ in range(2))
    partition.do(extends(first.token, alone=True))
    partition.do(extends(second.token, alone=True))
    partition.lose()
    assert partition.state.counts == FinishedCounts(dead=1)
    assert partition.state.committed == 0


def test_marking_alone_without_more_time_expires_once() -> None:
    """The end of the lease stays the same: it must not be seen twice."""
    partition = Partition("a")
    got = partition.take(1, isolates=True)
    partition.do(extends(got.token, lease_ms=0, alone=True))
    partition.lose()
    assert list(partition.state.waiting) == [0]


def test_behind_the_first_of_a_key_the_others_go_back_uncounted_s15() -> None:
    partition = Partition("aab")
    partition.take(3)
    partition.lose()
    assert list(partition.state.waiting) == [0, 2]
    assert partition.state.skipped == {ord("a"): [1]}
    got = partition.take(owner="bob")
    partition.ack(got.token, 0, owner="bob")
    assert partition.offsets(owner="bob") == [2]
    later = partition.take(owner="cyd")
    assert (list(later.offsets), later.suspect, later.deliveries, later.failures) == ([1], False, {1: 2}, {})


def test_a_suspect_that_is_acked_nacked_or_released_is_none_any_more() -> None:
    partition = Partition("ab")
    partition.take(2)
    partition.lose()
    got = partition.take(owner="bob")
    partition.nack(got.token, 0, owner="bob")
    partition.release(partition.take(owner="cyd").token, 1, owner="cyd")
    assert not any(tally.suspect for tally in partition.state.histories.values())
    partition.now += RETRY
    assert partition.offsets() == [0, 1]


def test_in_partition_order_one_suspect_holds_up_the_rest() -> None:
    partition = Partition("abc", order=Order.PARTITION)
    partition.take(2)
    partition.lose()
    got = partition.take(owner="bob")
    assert (list(got.offsets), got.suspect) == ([0], True)
    assert partition.offsets(owner="cyd") == []
    partition.ack(got.token, 0, owner="bob")
    assert partition.offsets(owner="cyd") == [1]


def test_answers_come_before_expiry_and_both_before_takes() -> None:
    """An ack that arrives with the question who is next is not too late by that."""
    partition = Partition("ab")
    got = partition.take(1)
    partition.now = got.until_ms - 1
    partition.step(acks(got.token, 0))
    assert partition.state.counts.acked == 1
    assert partition.last is not None
    assert partition.last.not_after_ms == got.until_ms - 1


def test_discarded_instead_of_a_dead_letter_when_the_group_keeps_none() -> None:
    partition = Partition("a", retries=Fixed(max=0), dead_letter=False)
    for _ in range(2):
        partition.take(1)
        partition.lose()
    assert partition.last is not None
    assert (partition.last.dead_messages, partition.state.counts) == ([], FinishedCounts(discarded=1))


def test_an_extended_lease_ends_later() -> None:
    partition = Partition("a")
    got = partition.take()
    partition.now += 20_000
    reply = partition.do(extends(got.token))
    assert reply.until_ms == NOW + 20_000 + LEASE
    partition.now = got.until_ms
    assert partition.offsets(owner="bob") == []
    assert partition.state.next_due_ms() == reply.until_ms
    assert partition.do(extends(got.token, lease_ms=1)).until_ms == reply.until_ms, "never earlier"
    assert partition.last is not None
    assert not partition.last.events
