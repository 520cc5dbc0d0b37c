"""Seeks, skips, commits of cursor groups, what retention cuts, and the bytes of states and journals."""

from __future__ import annotations

import msgspec
import pytest

from lakelog.coordinator.leasing.codec import decode_state, decode_summary, encode_events, encode_state, replay
from lakelog.coordinator.leasing.events import add_range, in_ranges, of_ranges, size, to_ranges
from lakelog.coordinator.leasing.operations import Accepted, AcquireMessages, CommitPosition, SeekPosition, SkipTo
from lakelog.coordinator.leasing.state import FinishedCounts, begin
from lakelog.coordinator.leasing.summary import summarize
from lakelog.errors import UnsupportedFormat
from tests.unit.coordinator.lease_partition import LEASE, NOW, RETRY, Partition, acks

# Seek -----------------------------------------------------------------------------------------------------------------


def test_a_seek_closes_leases_clears_everything_and_raises_the_epoch() -> None:
    partition = Partition("aabbcc", start=1)
    got = partition.take(1, generation=3)
    partition.nack(partition.take(1, owner="bob").token, 2, owner="bob")
    assert partition.do(SeekPosition(epoch=1, offset=4)) == Accepted()
    state = partition.state
    assert (state.epoch, state.start, state.frontier, state.committed) == (1, 4, 4, 4)
    assert (state.leases, state.waiting, state.skipped, state.histories, state.counts) == (
        {},
        {},
        {},
        {},
        FinishedCounts(),
    )
    assert (state.generation, state.last_token, state.next_due_ms()) == (3, 2, None)
    assert partition.refusal(acks(got.token, 1)) == "lease_lost"
    assert partition.take().token == 3, "tokens rise across seeks (S8)"


def test_a_seek_counts_once() -> None:
    partition = Partition("abc")
    partition.do(SeekPosition(epoch=2, offset=1))
    partition.ack(partition.take(1).token, 1)
    for epoch in (1, 2):
        taken = partition.step(SeekPosition(epoch=epoch, offset=0))
        assert (taken.replies, taken.events) == ([Accepted()], [])
    assert partition.state.committed == 2


def test_after_a_seek_back_deliveries_begin_at_one_again() -> None:
    partition = Partition("a")
    partition.ack(partition.take().token, 0)
    partition.do(SeekPosition(epoch=1, offset=0))
    assert partition.take().deliveries == {}


# Cursor groups --------------------------------------------------------------------------------------------------------


def test_a_commit_moves_the_position_and_a_repeat_is_fine() -> None:
    partition = Partition("abcdef", start=1)
    for _ in range(2):
        assert partition.do(CommitPosition(offset=4, generation=2, epoch=0)) == Accepted()
    assert (partition.state.committed, partition.state.counts, partition.state.generation) == (
        4,
        FinishedCounts(acked=3),
        2,
    )
    assert partition.last is not None
    assert not partition.last.events


@pytest.mark.parametrize(
    ("commit", "code"),
    [
        (CommitPosition(offset=2), "position_refused"),
        (CommitPosition(offset=7), "offset_out_of_range"),
        (CommitPosition(offset=4, epoch=0), "position_refused"),
        (CommitPosition(offset=4, epoch=2), "position_refused"),
        (CommitPosition(offset=4, generation=4), "stale_generation"),
        (CommitPosition(offset=7, generation=9), "offset_out_of_range"),
    ],
)
def test_a_commit_that_does_not_follow_is_refused_s9(commit: CommitPosition, code: str) -> None:
    partition = Partition("abcdef")
    partition.do(SeekPosition(epoch=1, offset=1))
    partition.do(CommitPosition(offset=3, generation=5, epoch=1))
    assert partition.refusal(commit) == code


# Retention ------------------------------------------------------------------------------------------------------------


def test_what_retention_takes_is_counted_as_cut_and_the_rest_goes_on_s23() -> None:
    partition = Partition("aabbccdd")
    first = partition.take(1)
    partition.nack(partition.take(1, owner="bob").token, 2, owner="bob")
    assert partition.state.skipped == {ord("a"): [1]}
    partition.log_start = 5
    assert partition.offsets(1, owner="bob") == [5]
    assert partition.state.counts == FinishedCounts(cut=4), "1 was skipped, 2 waited, 3 and 4 were not considered"
    assert partition.state.committed == 0, "0 is still leased"
    partition.ack(first.token, 0)
    assert partition.state.committed == 5


def test_what_comes_back_below_the_log_start_is_cut_at_once() -> None:
    """It is no longer readable and must not be delivered again, not even in the same step."""
    partition = Partition("abc")
    got = partition.take(2)
    partition.log_start = 2
    partition.step()
    partition.release(got.token, 0)
    assert partition.state.counts == FinishedCounts(cut=1)
    partition.now += LEASE
    assert partition.offsets(owner="bob") == [2]
    assert (partition.state.counts, partition.state.committed) == (FinishedCounts(cut=2), 2)


def test_what_goes_back_below_the_log_start_takes_none_of_its_key_along_s8() -> None:
    """It is not delivered again, so nothing has to wait for it; the owner works on the later ones."""
    partition = Partition("abaaa")
    got = partition.take()
    partition.log_start = 3
    partition.release(got.token, 0, 1, 2)
    assert partition.state.leases[got.token].open == {3: ord("a"), 4: ord("a")}
    assert partition.state.counts == FinishedCounts(cut=3)
    partition.ack(got.token, 3, 4)
    assert partition.state.committed == 5


def test_a_seek_below_the_log_start_is_cut_with_the_next_step() -> None:
    partition = Partition("abc")
    partition.log_start = 2
    partition.do(SeekPosition(epoch=1, offset=0))
    assert partition.offsets() == [2]
    assert partition.state.counts == FinishedCounts(cut=2)


# Skips ----------------------------------------------------------------------------------------------------------------


def test_a_skip_cuts_what_is_not_leased_and_goes_on_behind_it_s23() -> None:
    partition = Partition("aabbccdd")
    first = partition.take(1)
    partition.nack(partition.take(1, owner="bob").token, 2, owner="bob")
    assert partition.state.skipped == {ord("a"): [1]}
    assert partition.do(SkipTo(offset=5, epoch=0)) == Accepted(cut=4), "1 was skipped, 2 waited, 3 and 4 are unread"
    assert partition.state.counts == FinishedCounts(cut=4)
    partition.now += RETRY
    assert partition.offsets(owner="bob") == [5, 6, 7]
    assert partition.state.committed == 0, "0 is still leased"
    partition.ack(first.token, 0)
    assert partition.state.committed == 5


def test_a_repeated_skip_does_nothing() -> None:
    partition = Partition("abcdef")
    assert partition.do(SkipTo(offset=4, epoch=0)) == Accepted(cut=4)
    for offset in (4, 3, 0):
        repeated = partition.step(SkipTo(offset=offset, epoch=0))
        assert (list(repeated.replies), list(repeated.events)) == ([Accepted()], [])
    assert partition.offsets() == [4, 5]


def test_a_leased_message_that_comes_back_from_below_a_skip_is_retried() -> None:
    """Its bytes were delivered once, so they can be delivered again; a further skip cuts it."""
    partition = Partition("abcdef")
    nacked, lost = partition.take(1), partition.take(1, owner="bob")
    partition.do(SkipTo(offset=5, epoch=0))
    partition.nack(nacked.token, 0)
    partition.now = partition.state.leases[lost.token].until_ms
    assert partition.offsets(1, owner="cyd") == [1], "suspects come first, alone"
    assert partition.offsets(1) == [0]
    partition.nack(partition.state.last_token, 0, delay_ms=0)
    assert partition.do(SkipTo(offset=2, epoch=0)) == Accepted(cut=0), "0 died, 1 is leased"
    partition.release(partition.state.last_token - 1, 1, owner="cyd")
    assert partition.do(SkipTo(offset=2, epoch=0)) == Accepted(cut=1)
    assert partition.state.counts == FinishedCounts(cut=4, dead=1)


def test_a_skip_that_was_meant_for_another_position_is_refused_s9() -> None:
    """A seek came first: what lies below the offset now is not what the operator saw."""
    partition = Partition("abcdef")
    partition.do(SeekPosition(epoch=1, offset=0))
    assert partition.refusal(SkipTo(offset=4, epoch=0)) == "position_refused"


# Generations ----------------------------------------------------------------------------------------------------------


def test_a_take_of_an_old_generation_is_refused_s17() -> None:
    partition = Partition("abc")
    partition.take(1, generation=2)
    assert (
        partition.refusal(AcquireMessages(owner="bob", max_messages=1, lease_ms=LEASE, generation=1))
        == "stale_generation"
    )
    assert partition.offsets(1, owner="bob") == [1], "who names none is not checked"


# Bytes ----------------------------------------------------------------------------------------------------------------


def busy() -> Partition:
    """With something of everything."""
    partition = Partition("aabbccdd-")
    partition.expires = {1: NOW + 10**6, 8: NOW + 10**6}
    got = partition.take(1, request="r")
    partition.nack(partition.take(1, owner="bob").token, 2, owner="bob")
    partition.take(3, owner="cyd", generation=4)
    partition.take(1, owner="dan", lease_ms=10)
    partition.now += 10
    partition.ack(None, 4, owner="cyd")
    partition.do(acks(got.token, 0))
    return partition


def test_a_state_is_read_as_it_was_written() -> None:
    state = busy().state
    assert state.leases
    assert state.waiting
    assert state.skipped
    assert state.closed.details and state.closed.blocks
    body = encode_state(state)
    assert encode_state(decode_state(body)) == body
    assert decode_state(body).next_due_ms() == state.next_due_ms()


def test_a_journal_gives_the_same_state() -> None:
    partition, follower = Partition("abab"), begin(0)
    got = partition.take(2)
    for body in [partition.last, partition.step(acks(got.token, 1))]:
        assert body is not None
        replay(follower, encode_events(body.events, partition.now, summarize(partition.state)))
    assert encode_state(follower) == encode_state(partition.state)


def test_bytes_of_a_later_format_are_refused_by_name() -> None:
    later = msgspec.msgpack.encode((3, NOW, []))
    for read in (decode_state, decode_summary, lambda body: replay(begin(0), body)):
        with pytest.raises(UnsupportedFormat, match="format 3"):
            read(later)


def test_a_journal_with_events_that_are_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedFormat):
        replay(begin(0), msgspec.msgpack.encode((1, NOW, [[99, 1]])))


def test_ranges_are_joined_whatever_the_order() -> None:
    ranges: list[int] = []
    for first, end in ((4, 5), (0, 1), (6, 8), (5, 6), (1, 2), (9, 10), (8, 9)):
        add_range(ranges, first, end)
    assert ranges == [0, 2, 4, 10]
    assert [offset for offset in range(-1, 12) if in_ranges(ranges, offset)] == [0, 1, *range(4, 10)]
    assert (size(ranges), list(of_ranges(ranges))) == (8, [0, 1, *range(4, 10)])
    assert (to_ranges(list(of_ranges(ranges))), to_ranges([3, 4]), to_ranges([])) == (ranges, [3, 5], [])


def test_next_due_is_the_first_retry_or_end_of_a_lease() -> None:
    partition = Partition("ab")
    partition.take(1)
    assert partition.state.next_due_ms() == NOW + LEASE
    partition.nack(partition.take(1, owner="bob").token, 1, owner="bob")
    assert partition.state.next_due_ms() == NOW + RETRY
