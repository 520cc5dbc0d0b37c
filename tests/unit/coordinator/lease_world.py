"""Random worlds for `test_leasing_model`: what happens in them, and what has to hold after each step."""

from __future__ import annotations

import random
from typing import Any

from lakelog.coordinator.leasing import events as facts
from lakelog.coordinator.leasing.codec import decode_state, decode_summary, encode_events, encode_state, replay
from lakelog.coordinator.leasing.operations import (
    AcquireMessages,
    Candidates,
    CommitPosition,
    ExclusionReason,
    ExtendLease,
    FinishMessages,
    Granted,
    LeasingConfig,
    Operation,
    ReturnKind,
    ReturnMessages,
    SeekPosition,
    SkipTo,
    StepContext,
    StepResult,
)
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.coordinator.leasing.step import CLOCK_SLACK_MS, REMEMBER_MS, step
from lakelog.coordinator.leasing.summary import summarize
from lakelog.errors import LakelogError
from lakelog.model.group import Exponential, Fixed, Order
from tests.unit.coordinator.lease_checks import check_indexes, check_promises, check_same
from tests.unit.coordinator.lease_progress import Hold, Memory, Refused
from tests.unit.coordinator.lease_reference import Reference

STEPS = 200
OWNERS = ("ann", "bob", "cyd")
ISOLATES = "cyd"
RETURNS = {"nacked": ReturnKind.NACK, "released": ReturnKind.RELEASE, "died": ReturnKind.FATAL_NACK}


class World:
    """One partition, one group, a few owners, and chance."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.number = 0
        self.now = 1_000_000
        self.log_start = 0
        self.cursor = seed % 16 == 15
        self.ttl = rng.choice((0.0, 0.0, 0.6))
        self.filtered = rng.choice((0.0, 0.2))
        self.keyless = rng.choice((0.0, 0.3))
        self.keys = rng.choice((1, 3, 8))
        self.hasty = rng.choice((50, 300, 1500))
        self.config = self._config()
        start = rng.choice((0, 0, 5))
        self.reference = Reference(start=start, order=self.config.order, frontier=start)
        self.publish(10)
        self.state = begin(start)
        self.follower = begin(start)
        self.late = begin(start)
        self.recent: list[Operation] = []
        self.committed = (0, start)
        self.bytes = encode_state(self.state)

    def _config(self) -> LeasingConfig:
        rng = self.random
        most = rng.choice((0, 1, 3))
        return LeasingConfig(
            order=rng.choice((Order.KEY, Order.KEY, Order.PARTITION, Order.NONE)),
            retries=rng.choice((Fixed(max=most, seconds=0.2), Exponential(max=most, base_seconds=0.1, max_seconds=2))),
            dead_letter=rng.random() < 0.7,
            window=rng.choice((1, 5, 20, 20)),
            look_ahead=rng.choice((2, 10, 30)),
        )

    # A run ------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            self._pass_time()
            self.step(self._operations(), self._config_now())
        if not self.cursor:
            self.drain()

    def drain(self) -> None:
        """S11: with one owner that acks all it gets, everything ends."""
        for _ in range(1000):
            if self.state.committed == len(self.reference.entries):
                self.reference.seen["drained"] += 1
                return
            self.now += 10_000
            take = AcquireMessages(owner="zoe", max_messages=10, lease_ms=5000)
            [got] = self.step([take], self.config).replies
            if isinstance(got, Granted):
                ranges = [(offset, offset + 1) for offset in got.offsets]
                self.step([FinishMessages(owner="zoe", token=got.token, ranges=ranges)], self.config)
        raise AssertionError("The group does not come to an end.")

    def step(self, operations: list[Operation], config: LeasingConfig) -> StepResult:
        self.number += 1
        context = self._context(config)
        before = self.bytes
        memory = {hold.token: self._memory(hold.token) for hold in self.reference.closed}
        self.reference.memory = lambda token: memory.get(token, Memory.DETAIL)
        taken = step(self.state, operations, context)
        self._compare(operations, context, taken)
        self.bytes = encode_state(self.state)
        assert bool(taken.events) == (before != self.bytes), "events, and only they, change a state (S9)"
        self._replay(taken)
        self._count(taken)
        self._check(taken)
        return taken

    def _replay(self, taken: StepResult) -> None:
        """One state follows the journal from the beginning, one is read from a snapshot now and then."""
        if not taken.events:
            return
        body = encode_events(taken.events, self.now, summarize(self.state))
        assert decode_summary(body) == summarize(decode_state(self.bytes)), "figures are those of the state"
        for follower in (self.follower, self.late):
            replay(follower, body)
            if self.random.random() < 0.2:
                assert encode_state(follower) == self.bytes, "a journal tells the same (at a step before this, maybe)"
        if self.random.random() < 0.1:
            self.late = decode_state(self.bytes)
        if self.random.random() < 0.05:
            self.state = decode_state(self.bytes)
        if self.random.random() < 0.4:
            check_indexes(self.state, self.bytes, self.now)

    def _count(self, taken: StepResult) -> None:
        seen = self.reference.seen
        seen["steps that changed something"] += bool(taken.events)
        seen["forgot"] += sum(isinstance(event, facts.ClosedLeasesTrimmed) for event in taken.events)
        for reply in taken.replies:
            if isinstance(reply, LakelogError):
                seen[f"refused: {reply.code}"] += 1

    def _check(self, taken: StepResult) -> None:
        reference, state = self.reference, self.state
        assert max([self.now - CLOCK_SLACK_MS, *reference.lower]) == taken.not_before_ms
        assert min([self.now + CLOCK_SLACK_MS, *reference.upper]) == taken.not_after_ms
        assert taken.not_before_ms <= self.now <= taken.not_after_ms
        reference.lower, reference.upper = [], []
        assert [(d.offset, d.epoch, d.deliveries, d.failures) for d in taken.dead_messages] == reference.dead_messages
        reference.dead_messages = []
        assert list(taken.accepted_values) == reference.accepted_values
        reference.accepted_values = []
        for hold in reference.closed:
            if (hold.closed or 0) >= self.now - REMEMBER_MS and len(set(hold.said.values())) == 1:
                assert self._memory(hold.token) is not Memory.NONE, "an outcome is remembered for a minute"
                reference.seen["detail dropped"] += self._memory(hold.token) is Memory.OUTCOME
        check_same(state, reference)
        if taken.events:
            check_promises(state, reference)
        epoch, committed = self.committed
        assert state.epoch > epoch or state.committed >= committed, "the committed offset never falls (S16)"
        self.committed = (state.epoch, state.committed)

    # The reference, in the order of `step` ----------------------------------------------------------------------------

    def _memory(self, token: int) -> Memory:
        closed = self.state.closed
        if token in closed.details:
            return Memory.DETAIL
        return Memory.OUTCOME if closed.outcome(token) else Memory.NONE

    def _compare(self, operations: list[Operation], context: StepContext, taken: StepResult) -> None:
        reference = self.reference
        reference.cut(context.log_start)
        for operation, reply in zip(operations, taken.replies, strict=True):
            if not isinstance(operation, AcquireMessages):
                self._compare_answer(operation, context, reply)
        reference.expire(context)
        reference.cut(context.log_start)
        lapsed = {n for event in taken.events if isinstance(event, facts.MessagesExpired) for n in event.offsets}
        for operation, reply in zip(operations, taken.replies, strict=True):
            if isinstance(operation, AcquireMessages):
                self._compare_take(operation, context, reply, lapsed)

    def _compare_answer(self, operation: Any, context: StepContext, reply: Any) -> None:
        skipped = self.reference.seen["cut by a skip"]
        try:
            dead = self.reference.answer(operation, context)
        except Refused as refused:
            assert getattr(reply, "code", reply) == str(refused), operation
            return
        assert not isinstance(reply, LakelogError), (operation, reply)
        assert list(reply.dead) == list(dead)
        assert list(reply.filtered) == self.reference.filtered_by(operation)
        assert reply.cut == self.reference.seen["cut by a skip"] - skipped
        if isinstance(operation, ExtendLease):
            assert reply.until_ms in [hold.until for hold in self.reference.held_by(operation.owner)]

    def _compare_take(self, operation: AcquireMessages, context: StepContext, reply: Any, lapsed: set[int]) -> None:
        got = reply if isinstance(reply, Granted) else None
        try:
            expected = self.reference.take(operation, context, got, lapsed)
        except Refused as refused:
            assert getattr(reply, "code", reply) == str(refused), operation
            return
        assert not isinstance(reply, LakelogError), (operation, reply)
        assert (list(got.offsets) if got else []) == expected, operation
        if got:
            entries = [self.reference.entries[offset] for offset in got.offsets]
            assert [got.deliveries.get(each.offset, 1) for each in entries] == [each.deliveries for each in entries]
            assert [got.failures.get(each.offset, 0) for each in entries] == [each.failures for each in entries]

    # Random events ----------------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        rng = self.random
        self.now += rng.choice((0, 1, rng.randrange(self.hasty), rng.randrange(self.hasty)))
        if rng.random() < 0.03:
            self.now += 61_000
        unread = len(self.reference.entries) - self.state.frontier
        if unread < 15 and rng.random() < 0.5:
            self.publish(rng.randrange(8))
        if rng.random() < 0.03:
            rises_to = self.state.committed + rng.randrange(15)
            self.log_start = max(self.log_start, min(len(self.reference.entries), rises_to))

    def publish(self, count: int) -> None:
        rng = self.random
        for _ in range(count):
            key = 0 if rng.random() < self.keyless else 10 + rng.randrange(self.keys)
            expires = self.now + rng.randrange(10 * self.hasty) if rng.random() < self.ttl else None
            self.reference.publish(key, rng.random() < self.filtered, expires)

    def _config_now(self) -> LeasingConfig:
        """Return the config, sometimes with a pause."""
        plain = self.config
        paused = self.random.random() < 0.03
        return LeasingConfig(
            order=plain.order,
            retries=plain.retries,
            dead_letter=plain.dead_letter,
            window=plain.window,
            look_ahead=plain.look_ahead,
            paused=paused,
        )

    def _context(self, config: LeasingConfig) -> StepContext:
        rng, entries = self.random, self.reference.entries
        start = max(0, self.state.frontier - rng.choice((0, 0, 0, 3, -2)))
        read = entries[start : start + rng.choice((3, 20, 100))]
        return StepContext(
            now_ms=self.now,
            chance=rng.random(),
            config=config,
            candidates=Candidates(
                start=start,
                keys=[each.key for each in read],
                excluded={each.offset: ExclusionReason.FILTERED for each in read if each.filtered},
                expires={each.offset: each.expires for each in read if each.expires is not None},
            ),
            log_start=self.log_start,
            high_watermark=len(entries),
        )

    def _operations(self) -> list[Operation]:
        rng = self.random
        if self.cursor:
            return [self._commit() if rng.random() < 0.95 else self._seek() for _ in range(rng.choice((1, 1, 2)))]
        found: list[Operation] = []
        takes = 0
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            operation = self._operation()
            # Which of two takes found a message expired cannot be seen from outside.
            takes += isinstance(operation, AcquireMessages)
            if takes < 2 or not self.ttl:
                found.append(operation)
        self.recent = [*self.recent, *found][-12:]
        return found

    def _operation(self) -> Operation:
        rng = self.random
        choice = rng.random()
        if self.recent and choice < 0.06:
            return rng.choice(self.recent)
        if choice < 0.3 and (repeat := self._repeat()):
            return repeat
        if choice < 0.1 and self.reference.closed:
            return self._repeat_of(rng.choice(self.reference.closed))
        if choice < 0.43 or not self.state.leases:
            return self._take()
        if choice < 0.435:
            return self._seek()
        if choice < 0.44:
            return self._skip_to()
        return self._answer()

    def _repeat(self) -> Operation | None:
        """Return the answers about a lease that has ended and that no step has closed yet."""
        ended = [hold for hold in self.reference.holds if hold.until <= self.now and hold.said]
        return self._repeat_of(self.random.choice(ended)) if ended else None

    def _repeat_of(self, hold: Hold) -> Operation:
        word = self.random.choice(list(hold.said.values()))
        ranges = [(offset, offset + 1) for offset, said in hold.said.items() if said == word]
        about: dict[str, Any] = {"owner": hold.owner, "token": hold.token, "ranges": ranges}
        if word in RETURNS:
            return ReturnMessages(**about, kind=RETURNS[word])
        return FinishMessages(**about, discard=word == "discarded", through=self.random.random() < 0.2)

    def _take(self) -> AcquireMessages:
        rng = self.random
        owner = rng.choice(OWNERS)
        return AcquireMessages(
            owner=owner,
            max_messages=rng.choice((0, 1, 1, 1, 3, 8, 30)),
            lease_ms=rng.choice((100, 500, 500, 3000)),
            request=rng.choice(("", "", f"r{self.number}")),
            held_elsewhere=rng.choice((0, 0, 0, 2)),
            isolates=owner == ISOLATES,
            generation=self._generation(),
        )

    def _answer(self) -> Operation:
        rng = self.random
        lease = rng.choice(list(self.state.leases.values()))
        owner = lease.owner if rng.random() < 0.93 else rng.choice(OWNERS)
        token = rng.choices((lease.token, None, rng.randint(0, self.state.last_token + 1)), (8, 2, 1))[0]
        about: dict[str, Any] = {"owner": owner, "token": token, "generation": self._generation()}
        kind = rng.choices(("settle", "give back", "extend"), (5, 4, 3))[0]
        if kind == "extend":
            offset = rng.choice((None, next(iter(lease.open))))
            return ExtendLease(**about, lease_ms=rng.choice((0, 200, 1000)), offset=offset, alone=rng.random() < 0.5)
        ranges = self._ranges(list(lease.open))
        if kind == "settle":
            if rng.random() < 0.3 and all(end - first < 100 for first, end in ranges):
                return self._finish_once(about, ranges)
            discard, through = rng.random() < 0.2, rng.random() < 0.2
            return FinishMessages(**about, ranges=ranges, discard=discard, through=through)
        # Servers usually release unreadable messages, which does not count as a failure.
        uncounted = 30 if min(lease.open) < self.log_start else 3
        how = rng.choices((ReturnKind.NACK, ReturnKind.RELEASE, ReturnKind.FATAL_NACK), (6, uncounted, 1))[0]
        return ReturnMessages(**about, ranges=ranges, kind=how, delay_ms=rng.choice((None, None, 0, 300)), reason="so")

    def _finish_once(self, about: dict[str, Any], ranges: list[tuple[int, int]]) -> FinishMessages:
        """Return an ack of messages with values that often repeat, or the end of the repeats alone."""
        rng = self.random
        offsets = [offset for first, end in ranges for offset in range(first, end)]
        once = {offset: b"%d" % rng.randrange(4) for offset in offsets if rng.random() < 0.9} or {0: b"x"}
        taken = frozenset(b"%d" % value for value in range(4) if rng.random() < 0.3)
        return FinishMessages(**about, ranges=ranges, once=once, taken=taken, only_taken=rng.random() < 0.4)

    def _ranges(self, opened: list[int]) -> list[tuple[int, int]]:
        rng = self.random
        choice = rng.random()
        if choice < 0.4:
            offset = opened[0 if choice < 0.25 else -1]
            return [(offset, offset + 1)]
        if choice < 0.6:
            return [(offset, offset + 1) for offset in opened[: rng.randint(1, len(opened))]]
        if choice < 0.75:
            return [(offset, offset + 1) for offset in rng.choices(opened, k=2)]
        if choice < 0.9:
            return [(offset, offset + 1) for offset in opened]
        if choice < 0.98:
            first = rng.choice(opened)
            return [(first, first + rng.choice((1, 2, 5, 10**9)))]
        return []

    def _seek(self) -> SeekPosition:
        rng = self.random
        epoch = self.state.epoch + rng.choice((0, 1, 1, 1))
        return SeekPosition(epoch=epoch, offset=rng.randint(max(0, self.log_start - 2), len(self.reference.entries)))

    def _skip_to(self) -> SkipTo:
        rng = self.random
        offset = self.state.frontier + rng.choice((0, 1, 3, -2, -5))
        epoch = self.state.epoch - (rng.random() < 0.1)
        return SkipTo(offset=max(0, min(offset, len(self.reference.entries))), epoch=epoch)

    def _commit(self) -> CommitPosition:
        rng = self.random
        offset = self.state.frontier + rng.choice((0, 1, 1, 2, 5, -1, 40))
        epoch = rng.choice((None, self.state.epoch, self.state.epoch, self.state.epoch - 1))
        return CommitPosition(offset=max(0, offset), generation=self._generation(), epoch=epoch)

    def _generation(self) -> int | None:
        now: DeliveryState = self.state
        return self.random.choices((None, now.generation, now.generation + 1, now.generation - 1), (90, 5, 3, 3))[0]
