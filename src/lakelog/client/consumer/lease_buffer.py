"""The messages of leases that the program has not asked for yet. Leases are decoded when they are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakelog.client.consumer.held_messages import HeldMessages
from lakelog.client.consumer.pulled_message import LeasePortion, Part, PulledMessage
from lakelog.client.worker.leased_message import WorkerLease, key_of

Decode = Callable[["BufferedLease"], LeasePortion]


@dataclass(frozen=True, slots=True, eq=False)
class BufferedLease:
    """A lease whose messages are not decoded yet, with the time since when it is buffered."""

    topic: str
    lease: WorkerLease
    payloads: Sequence[bytes | memoryview]
    incarnation: int
    offsets: tuple[int, ...]
    since: float


class LeaseBuffer:
    """The buffered messages of one topic."""

    def __init__(self, decode: Decode) -> None:
        self.held = HeldMessages()
        self._decode = decode
        self._leases: deque[BufferedLease] = deque()
        self._decoded: deque[LeasePortion] = deque()
        self._next = 0
        """The index of the next message of the first decoded lease."""
        self._ready: deque[PulledMessage] = deque()
        """Messages that come before the decoded ones."""
        self._since = 0.0
        """When the oldest decoded message was buffered."""
        self._undecoded = 0

    @property
    def ready(self) -> int:
        """The number of messages that can be taken, as far as their keys are known."""
        return self._undecoded + sum([each.count for each in self._decoded]) - self._next + len(self._ready)

    def add(self, lease: BufferedLease) -> None:
        """Buffer a lease."""
        self._leases.append(lease)
        self._undecoded += len(lease.offsets)

    def take(self, count: int) -> list[Part]:
        """Return at most that many messages, in order, of keys of which the program holds none."""
        taken: list[Part] = []
        left = count
        is_free, allows_all = self.held.is_free, self.held.allows_all
        while left and (self._ready or self._decoded or self._decode_next()):
            if allows_all and not self._ready and count > 1:
                # The usual case, in bulk: the program holds nothing.
                portion = self._pop_portion(left)
                taken.append(portion)
                left -= portion.count
                continue
            leased = self._ready.popleft() if self._ready else self._pop_single()
            if is_free(leased):
                taken.append(leased)
                left -= 1
        self.held.add(taken)
        return taken

    def take_leases(self, count: int) -> list[BufferedLease]:
        """Return whole leases with at most that many messages, but one lease if there is one."""
        taken: list[BufferedLease] = []
        rows = 0
        while self._leases and (not taken or rows + len(self._leases[0].offsets) <= count):
            taken.append(self._pop_lease())
            rows += len(taken[-1].offsets)
        return taken

    def answered(self, leased: PulledMessage) -> None:
        """Record the answer to a message: the next message of its key can be taken."""
        self._ready.extendleft(reversed(self.held.discard(leased)))

    def answered_all(self, messages: Sequence[PulledMessage]) -> None:
        """Record the answers to several messages."""
        if not self.held.discard_all(messages):
            for leased in messages:
                self.answered(leased)

    def remove_later(self, leased: PulledMessage) -> list[PulledMessage]:
        """Remove the later messages of a key and lease, which the server has taken back, and return them."""
        order = self.held.order
        key = key_of(leased, order)
        if key is None:
            return []
        return self._remove(
            lambda each: (
                each.lease is leased.lease
                and each.message.offset > leased.message.offset
                and key_of(each, order) == key
            )
        )

    def remove_lease(self, lease: WorkerLease) -> None:
        """Remove all messages of a lease that has ended."""
        self.held.finish_portions(lease)
        self._remove(lambda each: each.lease is lease)
        kept = [each for each in self._leases if each.lease is not lease]
        self._leases = deque(kept)
        self._undecoded = sum(len(each.offsets) for each in kept)

    def oldest(self) -> float | None:
        """Return since when the oldest message waits; None if no message waits."""
        if self._ready or self._decoded or self.held.parked:
            return self._since
        return self._leases[0].since if self._leases else None

    def pop_older(self, before: float) -> dict[WorkerLease, list[int]]:
        """Remove the messages that were buffered before that time. Return their offsets, by lease."""
        found = self.pop_decoded() if self._since <= before else {}
        while self._leases and self._leases[0].since <= before:
            lease = self._pop_lease()
            found.setdefault(lease.lease, []).extend(lease.offsets)
        return found

    def pop_decoded(self) -> dict[WorkerLease, list[int]]:
        """Remove the messages of leases that were begun. Return their offsets, by lease."""
        self._separate_decoded()
        found: dict[WorkerLease, list[int]] = {}
        for leased in [*self._ready, *self.held.unpark()]:
            found.setdefault(leased.lease, []).append(leased.message.offset)
        self._ready.clear()
        return found

    def _decode_next(self) -> bool:
        if not self._leases:
            return False
        lease = self._pop_lease()
        self._since = lease.since
        self._decoded.append(self._decode(lease))
        return True

    def _pop_portion(self, most: int) -> LeasePortion:
        """Return the next messages of the first decoded lease."""
        first = self._decoded[0]
        end = min(self._next + most, first.count)
        portion = first if end - self._next == first.count else first.part(self._next, end)
        self._move_to(end)
        return portion

    def _pop_single(self) -> PulledMessage:
        single = self._decoded[0].single(self._next)
        self._move_to(self._next + 1)
        return single

    def _move_to(self, index: int) -> None:
        self._next = index
        if index == self._decoded[0].count:
            self._decoded.popleft()
            self._next = 0

    def _separate_decoded(self) -> None:
        while self._decoded:
            self._ready.append(self._pop_single())

    def _pop_lease(self) -> BufferedLease:
        lease = self._leases.popleft()
        self._undecoded -= len(lease.offsets)
        return lease

    def _remove(self, is_meant: Callable[[PulledMessage], bool]) -> list[PulledMessage]:
        self._separate_decoded()
        removed = [each for each in self._ready if is_meant(each)]
        self._ready = deque(each for each in self._ready if not is_meant(each))
        parked = self.held.unpark()
        removed += [each for each in parked if is_meant(each)]
        for each in self.held.messages():
            if is_meant(each):
                each.is_done = True
                self.held.discard(each)
                removed.append(each)
        # Those that stay are parked again when they are taken.
        self._ready.extendleft(reversed([each for each in parked if not is_meant(each)]))
        return removed
