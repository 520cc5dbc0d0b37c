"""The messages that a program holds. A program never holds two messages of a key that it took separately."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from lakelog.client.consumer.pulled_message import LeasePortion, Part, PulledMessage
from lakelog.client.worker.leased_message import WorkerLease, key_of
from lakelog.model.group import Order


class HeldMessages:
    """The table of the messages that the program holds, and of those that wait for an earlier message of their key.

    Keys are hashed only when a second message is asked for while one is held: a program that takes and answers one
    batch after the other never needs the hashes.
    """

    def __init__(self) -> None:
        self.order = Order.KEY
        self._portions: dict[LeasePortion, None] = {}
        """The portions that are whole."""
        self._new: dict[PulledMessage, None] = {}
        self._hashed: dict[PulledMessage, object] = {}
        self._counts: Counter[object] = Counter()
        self._parked: dict[object, deque[PulledMessage]] = {}

    @property
    def allows_all(self) -> bool:
        """True if the program may get any message: messages have no order, or it holds none."""
        return self.order is Order.NONE or not (self._portions or self._new or self._hashed)

    @property
    def parked(self) -> int:
        """The number of messages that wait for an earlier message of their key."""
        return sum(map(len, self._parked.values()))

    def add(self, parts: Iterable[Part]) -> None:
        """Record messages that the program gets."""
        for part in parts:
            if isinstance(part, LeasePortion):
                self._portions[part] = None
            else:
                self._new[part] = None

    def is_free(self, leased: PulledMessage) -> bool:
        """Return whether the program holds no message of the same key. Park the message otherwise."""
        if self.allows_all:
            return True
        self._hash_new()
        key = key_of(leased, self.order)
        if key is None or not self._counts[key]:
            return True
        self._parked.setdefault(key, deque()).append(leased)
        return False

    def discard(self, leased: PulledMessage) -> deque[PulledMessage]:
        """Record that the program no longer holds a message. Return the messages that waited for it."""
        if leased in self._new:
            del self._new[leased]
            return deque()
        if leased not in self._hashed:
            return deque()
        key = self._hashed.pop(leased)
        self._counts[key] -= 1
        if self._counts[key]:
            return deque()
        del self._counts[key]
        return self._parked.pop(key, deque())

    def discard_all(self, messages: Sequence[PulledMessage]) -> bool:
        """Discard messages whose keys were never needed. Return False if keys are in use, and discard nothing."""
        if self._hashed or self._parked:
            return False
        for leased in messages:
            self._new.pop(leased, None)
        return True

    def discard_portion(self, portion: LeasePortion) -> None:
        """Record that the program no longer holds a portion. No message waits for it, because it is whole."""
        self._portions.pop(portion, None)

    def separate(self, portion: LeasePortion | None) -> None:
        """Hold the messages of a portion one by one, because they get different answers."""
        if portion is not None and portion in self._portions:
            del self._portions[portion]
            self._new.update(dict.fromkeys(portion.separate()))

    def unpark(self) -> list[PulledMessage]:
        """Return the messages that wait for an earlier one, and forget them."""
        parked, self._parked = self._parked, {}
        return [leased for waiting in parked.values() for leased in waiting]

    def parts(self) -> list[Part]:
        """Return what the program holds."""
        return [*self._portions, *self._new, *self._hashed]

    def messages(self) -> list[PulledMessage]:
        """Return the messages that the program holds, one by one."""
        self._separate_all()
        return [*self._new, *self._hashed]

    def finish_portions(self, lease: WorkerLease) -> None:
        """Drop the portions of a lease that has ended."""
        for portion in [each for each in self._portions if each.lease is lease]:
            portion.finish()
            self.discard_portion(portion)

    def _separate_all(self) -> None:
        for portion in list(self._portions):
            self.separate(portion)

    def _hash_new(self) -> None:
        self._separate_all()
        new, self._new = self._new, {}
        for leased in new:
            key = key_of(leased, self.order)
            self._hashed[leased] = key
            self._counts[key] += 1
