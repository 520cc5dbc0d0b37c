"""Closed leases are remembered for a minute at any pace, in little space, and what is forgotten is said so (S9)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from lakelog.coordinator.leasing import events as facts
from lakelog.coordinator.leasing.applying import apply
from lakelog.coordinator.leasing.closed_leases import BLOCK, ClosedLeases, DeliveryOutcome
from lakelog.coordinator.leasing.codec import decode_state, encode_state
from lakelog.coordinator.leasing.operations import (
    Accepted,
    AcquireMessages,
    Candidates,
    FinishMessages,
    LeasingConfig,
    Operation,
    ReturnKind,
    ReturnMessages,
    SeekPosition,
    StepContext,
)
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.coordinator.leasing.step import REMEMBER_BYTES, REMEMBER_MS, step
from lakelog.errors import LakelogError
from lakelog.model.group import Fixed, Order
from tests.unit.coordinator.lease_partition import Partition, acks, extends, nacks

PER_SECOND = 2500
SECONDS = 60
RETURNS = {
    DeliveryOutcome.NACKED: ReturnKind.NACK,
    DeliveryOutcome.RELEASED: ReturnKind.RELEASE,
    DeliveryOutcome.DEAD: ReturnKind.FATAL_NACK,
}


class Rush:
    """Leases of two messages, closed as fast as they are granted. Only each 125th is granted by a step."""

    def __init__(self) -> None:
        self.state: DeliveryState = begin(0, last_token=1 << 50)
        self.now = 1_790_000_000_000
        self.ended: dict[int, tuple[int, list[DeliveryOutcome]]] = {}
        """By token: the first offset, and what became of it and of the next one."""

    def run(self, seconds: int, choose: Callable[[], list[DeliveryOutcome]]) -> None:
        for number in range(seconds * PER_SECOND):
            if number % (PER_SECOND // 50) == 0:
                self.now += 20
            if number % 125 == 124:
                self.step(AcquireMessages(owner="a-worker-of-the-shop-17", max_messages=2, lease_ms=5000))
            else:
                first, token = self.state.frontier, self.state.last_token + 1
                flat = [first, first + 2]
                self.apply(facts.LeaseGranted(token, "a-worker-17", "", self.now + 5000, flat, b"", False, False, []))
            self.end(self.state.last_token, choose())

    def step(self, operation: Operation) -> object:
        context = StepContext(
            now_ms=self.now,
            chance=0.5,
            config=LeasingConfig(order=Order.NONE, retries=Fixed(max=1)),
            candidates=Candidates(start=self.state.frontier, keys=[0, 0]),
            high_watermark=self.state.frontier + 2,
        )
        return step(self.state, [operation], context).replies[0]

    def apply(self, event: facts.AnyEvent) -> None:
        apply(self.state, event, self.now)

    def end(self, token: int, outcomes: list[DeliveryOutcome]) -> None:
        first = self.state.frontier - 2
        for offset, outcome in zip((first, first + 1), outcomes, strict=True):
            if outcome in (DeliveryOutcome.ACKED, DeliveryOutcome.DISCARDED):
                self.apply(facts.MessagesFinished(token, outcome, [offset, offset + 1]))
            elif outcome is DeliveryOutcome.DEAD:
                self.apply(facts.MessageDied(token, offset, False))
            else:
                self.apply(facts.MessagesReturned(token, outcome, [offset, self.now, 0, 0], []))
        for offset in list(self.state.waiting):
            self.apply(facts.MessageDied(0, offset, False))
        self.ended[token] = (first, outcomes)

    def repeats(self, token: int) -> object:
        """Return the reply to an owner that repeats its answer about the first message."""
        first, outcomes = self.ended[token]
        about = {"owner": "a-worker-17", "token": token, "ranges": [(first, first + 1)]}
        if outcomes[0] in RETURNS:
            return self.step(ReturnMessages(**about, kind=RETURNS[outcomes[0]]))  # type: ignore[arg-type]
        return self.step(FinishMessages(**about, discard=outcomes[0] is DeliveryOutcome.DISCARDED))  # type: ignore[arg-type]

    def growth(self) -> int:
        """How much of a snapshot is about closed leases."""
        whole = decode_state(encode_state(self.state))
        size = len(encode_state(whole))
        whole.closed = ClosedLeases()
        return size - len(encode_state(whole))


def code(reply: object) -> str:
    return reply.code if isinstance(reply, LakelogError) else "done" if isinstance(reply, Accepted) else repr(reply)


def test_a_repeated_ack_is_recognised_for_a_minute_at_2500_leases_a_second_s9() -> None:
    rush = Rush()
    rush.run(SECONDS, lambda: [DeliveryOutcome.ACKED] * 2)
    tokens = list(rush.ended)
    assert len(tokens) == 150_000
    assert {code(rush.repeats(token)) for token in tokens[:: len(tokens) // 1000]} == {"done"}
    assert rush.growth() < 64 * 1024
    assert len(rush.state.closed.details) > 500, "most of the space is left for details"


@pytest.mark.nightly
def test_the_worst_mix_of_outcomes_takes_at_most_64_kib_of_a_snapshot_s9() -> None:
    rush, rng = Rush(), random.Random(7)
    rush.run(SECONDS, lambda: [rng.choice(list(DeliveryOutcome))] * 2)
    assert rush.growth() <= 64 * 1024
    rush.run(1, lambda: rng.choices(list(DeliveryOutcome), k=2))
    assert rush.growth() <= 64 * 1024
    tokens = list(rush.ended)[PER_SECOND:]
    for token in tokens[:: len(tokens) // 1000]:
        _, outcomes = rush.ended[token]
        expected = {"done"} if outcomes[0] == outcomes[1] else {"done", "outcome_forgotten"}
        if outcomes[0] is DeliveryOutcome.EXPIRED:
            expected = {"lease_lost", "outcome_forgotten"}
        assert code(rush.repeats(token)) in expected, (token, outcomes)


def test_details_of_leases_with_several_outcomes_stay_longest() -> None:
    rush = Rush()
    rush.run(
        1,
        lambda: (
            [DeliveryOutcome.ACKED, DeliveryOutcome.DISCARDED]
            if len(rush.ended) % 50 == 0
            else [DeliveryOutcome.ACKED] * 2
        ),
    )
    mixed = [token for token, (_, outcomes) in rush.ended.items() if outcomes[0] != outcomes[1]]
    assert set(mixed) <= set(rush.state.closed.details)
    assert {code(rush.repeats(token)) for token in mixed} == {"done"}


@pytest.mark.parametrize("long", [False, True], ids=["many messages", "long names"])
def test_large_details_do_not_make_a_snapshot_large(long: bool) -> None:
    partition = Partition("-" * 4000, window=10_000)
    for _ in range(300 if long else 8):
        got = partition.take(4 if long else 500, owner="n" * 255 if long else "ann")
        partition.ack(got.token, *got.offsets[::2], owner="n" * 255 if long else "ann")
        discard = FinishMessages(
            owner="n" * 255 if long else "ann",
            token=got.token,
            ranges=[(offset, offset + 1) for offset in got.offsets[1::2]],
            discard=True,
        )
        assert partition.do(discard) == Accepted()
        assert len(encode_state(partition.state)) < REMEMBER_BYTES


def test_a_lease_that_is_forgotten_is_not_called_lost_s9() -> None:
    partition = Partition("-" * 2 * BLOCK)
    for _ in range(BLOCK + 1):
        partition.ack(partition.take(1).token, partition.state.frontier - 1)
    partition.now += REMEMBER_MS
    assert partition.do(acks(1, 0)) == Accepted(), "after a minute exactly"
    partition.now += 1
    for _ in range(100):
        partition.ack(partition.take(1).token, partition.state.frontier - 1)
    for said in (
        acks(1, 0),
        acks(1, 0, discard=True),
        acks(1, 0, through=True),
        *(nacks(1, 0, kind=k) for k in ReturnKind),
    ):
        assert partition.refusal(said) == "outcome_forgotten"
    assert partition.refusal(extends(1)) == "lease_lost", "it has ended, that is known"
    assert partition.refusal(acks(None, 0)) == "lease_lost", "without a token it could be any"
    for token in (0, -1, partition.state.last_token + 1):
        assert partition.refusal(acks(token, 0)) == "lease_lost", "it was never given out"


def test_a_lease_from_before_a_seek_is_lost_s9() -> None:
    partition = Partition("abc")
    got = partition.take(1)
    partition.ack(got.token, 0)
    partition.do(SeekPosition(epoch=1, offset=0))
    assert partition.refusal(acks(got.token, 0)) == "lease_lost"
    partition.take(1)
    assert partition.refusal(acks(got.token, 0)) == "lease_lost"


@pytest.fixture
def outlined() -> tuple[Partition, int]:
    """A partition, and the token of a lease of offsets 0 to 2, of which only is known that all were acked."""
    partition = Partition("abcabc")
    got = partition.take(3)
    partition.ack(got.token, 0, 1, 2)
    partition.state.closed.forget([got.token], [])
    return partition, got.token


def test_where_only_the_outcome_is_known_a_repeat_is_answered_by_it(outlined: tuple[Partition, int]) -> None:
    partition, token = outlined
    assert partition.do(acks(token, 0, 2)) == partition.do(acks(token, 2, through=True)) == Accepted()
    assert partition.refusal(acks(token, 0, discard=True)) == "lease_lost", "it was acked"
    assert partition.refusal(nacks(token, 0)) == "lease_lost"


def test_where_only_the_outcome_is_known_messages_that_cannot_have_had_it_are_refused(
    outlined: tuple[Partition, int],
) -> None:
    partition, token = outlined
    assert partition.refusal(acks(token, 3)) == "lease_lost", "not considered yet"
    assert partition.refusal(FinishMessages(owner="ann", token=token, ranges=[(0, 10**15)])) == "lease_lost"
    got = partition.take(2)
    assert partition.refusal(acks(token, 0, 3)) == "lease_lost", "leased"
    partition.nack(got.token, 3)
    assert partition.refusal(acks(token, 3)) == "lease_lost", "waiting"
    partition.keys.append(ord("a"))
    partition.take()
    assert partition.state.skipped == {ord("a"): [6]}
    assert partition.refusal(acks(token, 6)) == "lease_lost", "skipped"


def test_where_only_the_outcome_is_known_a_repeated_nack_says_when_the_message_is_due() -> None:
    partition = Partition("ab", retries=Fixed(max=3, seconds=2))
    got = partition.take()
    first = partition.do(nacks(got.token, 0, 1))
    partition.state.closed.forget([got.token], [])
    assert partition.do(nacks(got.token, 0, 1)) == first
    fatal = Partition("ab")
    got = fatal.take()
    first = fatal.do(nacks(got.token, 0, 1, kind=ReturnKind.FATAL_NACK))
    fatal.state.closed.forget([got.token], [])
    assert fatal.do(nacks(got.token, 0, 1, kind=ReturnKind.FATAL_NACK)) == first


def test_a_lease_that_is_closed_long_after_later_ones_is_remembered_s9() -> None:
    partition = Partition("-" * 3 * BLOCK)
    slow = partition.take(1, owner="bob", lease_ms=10 * REMEMBER_MS)
    for _ in range(2 * BLOCK):
        partition.ack(partition.take(1).token, partition.state.frontier - 1)
    partition.now += REMEMBER_MS + 1
    for _ in range(200):
        partition.ack(partition.take(1).token, partition.state.frontier - 1)
    assert partition.refusal(acks(slow.token + 1, 1)) == "outcome_forgotten"
    partition.ack(slow.token, 0, owner="bob")
    partition.state.closed.forget([slow.token], [])
    assert partition.do(acks(slow.token, 0, owner="bob")) == Accepted()
    assert partition.refusal(acks(slow.token + 1, 1)) == "outcome_forgotten", "its neighbours stay forgotten"
