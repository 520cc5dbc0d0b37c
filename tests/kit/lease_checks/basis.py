"""What all checks of leases share: deliveries and answers put in order, and the truth at the end. It checks nothing.

Tokens of a partition only rise, so that they tell which of two leases came first, whoever recorded them. An answer or a
consume of unknown outcome may have happened: it excuses what it could have caused, and proves nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakelog.model.group import Exponential, Order, RetryPolicy
from tests.kit.lease_history import LeaseOperation, ProgressSeen

Place = tuple[int, int]
"""A message: partition and offset."""
FINISHING = frozenset({"ack", "discard", "fail"})
RETURNING = frozenset({"nack", "release", "fail"})
CLOSING = FINISHING | RETURNING
MS = 1_000_000
GAVE_UP_NS = 9_000_000_000


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The group's settings, as far as they decide what is right."""

    retries: RetryPolicy = field(default_factory=Exponential)
    order: Order = Order.KEY

    @property
    def limit(self) -> int:
        """So many failures make a dead letter."""
        return self.retries.max + 1

    def min_delay_ms(self, failures: int) -> int:
        return self.retries.delay_ms(failures, 1.0)

    def max_delay_ms(self, failures: int) -> int:
        return self.retries.delay_ms(failures, 0.0)


@dataclass(frozen=True, kw_only=True)
class DeadSeen:
    """A dead letter at the end."""

    partition: int
    offset: int
    failures: int
    deliveries: int


@dataclass(frozen=True, kw_only=True)
class LeaseTruth:
    """One group and topic after the drain. `keys` has every message of the log, also those without a key."""

    topic: str
    group: str
    keys: Mapping[Place, str | None]
    progress: Sequence[ProgressSeen]
    dead: Sequence[DeadSeen] = ()
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, kw_only=True)
class LeaseViolation:
    """A counter-example: what is wrong, and the operations that show it."""

    invariant: str
    what: str
    operations: tuple[LeaseOperation, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(operation.id for operation in self.operations)
        return f"{self.invariant}: {self.what}" + (f" [{shown}]" if shown else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One message given to one owner. `epoch` counts the seeks before it; `together` is the size of the answer."""

    place: Place
    token: int
    owner: str
    epoch: int
    number: int
    failures: int
    granted_ms: int
    expires_ms: int
    suspect: bool
    together: int
    consume: LeaseOperation

    @property
    def told_ns(self) -> int:
        assert self.consume.completed_ns is not None
        return self.consume.completed_ns

    @property
    def told_wall_ms(self) -> float:
        assert self.consume.completed_wall_ns is not None
        return self.consume.completed_wall_ns / MS


class Story:
    """A history of one group and topic in order. `doubts` are reasons why nothing can be concluded from it."""

    def __init__(self, operations: Iterable[LeaseOperation], truth: LeaseTruth) -> None:
        mine = [each for each in operations if each.topic == truth.topic and each.group == truth.group]
        mine.sort(key=lambda each: each.invoked_ns)
        self.truth = truth
        self.doubts: list[str] = []
        self.seeks = [each for each in mine if each.op == "seek" and each.happened]
        self.samples = [each for each in mine if each.op == "progress" and each.outcome == "ok"]
        self.unknown = [each for each in mine if each.op == "consume" and _may_have_leased(each)]
        self._unknown_times = [each.invoked_ns for each in self.unknown]
        self.deliveries: dict[Place, list[Delivery]] = defaultdict(list)
        """By message, in the order of their tokens, each lease once."""
        self.again: list[Delivery] = []
        """The same leases, told a second time to a repeated call."""
        self.by_lease: dict[tuple[int, int, int], Delivery] = {}
        self.lease_offsets: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.answers: dict[tuple[int, int, int], list[LeaseOperation]] = defaultdict(list)
        """By partition, token and offset, refused ones too, in the order in which they were said."""
        self.extends: dict[tuple[int, int], list[LeaseOperation]] = defaultdict(list)
        self._check_seeks()
        self._take_in(mine)
        self.dead = {(letter.partition, letter.offset): letter for letter in truth.dead}
        self.epoch = len(self.seeks)

    def _check_seeks(self) -> None:
        self.doubts += [f"{each.id}: a seek of unknown outcome" for each in self.seeks if each.outcome != "ok"]

    def _take_in(self, operations: Sequence[LeaseOperation]) -> None:
        for each in operations:
            if each.op == "consume" and each.outcome == "ok":
                self._consumed(each)
            elif each.op == "extend" and each.partition is not None and each.token is not None:
                self.extends[each.partition, each.token].append(each)
            elif each.op in CLOSING and each.partition is not None and each.token is not None:
                for offset in each.offsets:
                    self.answers[each.partition, each.token, offset].append(each)
        for those in self.deliveries.values():
            those.sort(key=lambda delivery: delivery.token)

    def _consumed(self, operation: LeaseOperation) -> None:
        epoch = self._epoch_of(operation)
        together = sum(len(lease.messages) for lease in operation.leases)
        for lease in operation.leases:
            for got in lease.messages:
                place = (lease.partition, got.offset)
                delivery = Delivery(
                    place=place,
                    token=lease.token,
                    owner=operation.owner,
                    epoch=epoch,
                    number=got.delivery,
                    failures=got.failures,
                    granted_ms=lease.expires_ms - (operation.lease_ms or 0),
                    expires_ms=lease.expires_ms,
                    suspect=lease.suspect,
                    together=together,
                    consume=operation,
                )
                known = self.by_lease.setdefault((lease.partition, lease.token, got.offset), delivery)
                if known is delivery:
                    self.lease_offsets[lease.partition, lease.token].append(got.offset)
                if known is delivery or known.owner != delivery.owner:
                    self.deliveries[place].append(delivery)
                else:
                    self.again.append(delivery)

    def _epoch_of(self, operation: LeaseOperation) -> int:
        epoch = 0
        for seek in self.seeks:
            if seek.completed_ns is not None and seek.completed_ns < operation.invoked_ns:
                epoch += 1
            elif operation.leases and seek.invoked_ns < (operation.completed_ns or 0):
                self.doubts.append(f"{operation.id}: leased during the seek {seek.id}")
        return epoch

    # Questions --------------------------------------------------------------------------------------------------------

    def said(self, delivery: Delivery) -> list[LeaseOperation]:
        """What was said about this delivery, refused or not."""
        return self.answers.get((delivery.place[0], delivery.token, delivery.place[1]), [])

    def closers(self, delivery: Delivery) -> list[LeaseOperation]:
        """What may have taken the message out of that lease: its answers, and nacks of its key in the same lease."""
        found = [each for each in self.said(delivery) if each.happened]
        key = self.key(delivery.place)
        if key is not None:
            for offset in self.in_front(delivery):
                for each in self.answers.get((delivery.place[0], delivery.token, offset), ()):
                    if each.happened and each.op in RETURNING:
                        found.append(each)
        return found

    def in_front(self, delivery: Delivery) -> list[int]:
        """Earlier messages of the same key in the same lease."""
        partition, offset = delivery.place
        key = self.key(delivery.place)
        others = self.lease_offsets[partition, delivery.token]
        return [each for each in others if each < offset and self.key((partition, each)) == key]

    def key(self, place: Place) -> str | None:
        """What orders the message, if anything does."""
        if self.truth.rules.order is Order.PARTITION:
            return ""
        return self.truth.keys.get(place) if self.truth.rules.order is Order.KEY else None

    def chains(self) -> dict[tuple[int, str], list[int]]:
        """The offsets of each key in order, by partition and key."""
        if not hasattr(self, "_chains"):
            chains: dict[tuple[int, str], list[int]] = defaultdict(list)
            for place in sorted(self.truth.keys):
                key = self.key(place)
                if key is not None:
                    chains[place[0], key].append(place[1])
            self._chains = chains
        return self._chains

    def expires_ms(self, delivery: Delivery) -> int:
        """Until when it was surely valid, unless it was answered."""
        extends = self.extends.get((delivery.place[0], delivery.token), ())
        known = [each.expires_ms for each in extends if each.outcome == "ok" and each.expires_ms is not None]
        return max([delivery.expires_ms, *known])

    def latest_ms(self, delivery: Delivery) -> float:
        """Until when it can have been valid at most: an extend of unknown outcome may have come at any time."""
        extends = self.extends.get((delivery.place[0], delivery.token), ())
        if any(each.outcome == "info" for each in extends):
            return float("inf")
        return self.expires_ms(delivery)

    def unknown_before(self, time_ns: int) -> int:
        """How many consumes of unknown outcome were made before: each may have taken a message, and told nobody."""
        return bisect_left(self._unknown_times, time_ns)

    def epochs(self, place: Place) -> dict[int, list[Delivery]]:
        """The deliveries of a message by position epoch."""
        found: dict[int, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries.get(place, ()):
            found[delivery.epoch].append(delivery)
        return found

    def finishes(self, place: Place, epoch: int) -> list[LeaseOperation]:
        """What may have finished the message in that epoch: acks, discards, fatal nacks."""
        return [
            each
            for delivery in self.deliveries.get(place, ())
            if delivery.epoch == epoch
            for each in self.said(delivery)
            if each.happened and each.op in FINISHING
        ]

    def was_alone(self, delivery: Delivery) -> bool:
        """Whether it was a suspect, and all that its owner had in hand: its end then counts as a failure."""
        return delivery.suspect and delivery.together == 1


def _may_have_leased(consume: LeaseOperation) -> bool:
    """Whether messages may have been leased that the owner was not told of.

    That is so also where a server was so slow that it answered with nothing, and gave back what came after that.
    """
    if consume.outcome == "info":
        return True
    took = (consume.completed_ns or 0) - consume.invoked_ns
    return consume.outcome == "ok" and not consume.leases and took > GAVE_UP_NS
