"""A leased message in the hands of a program that pulls, and the table of the messages that it holds.

They belong to the consumer's event loop. Programs see a message as a `Delivery` or an `AsyncDelivery`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease, key_of
from lakelog.model.group import Order
from lakelog.model.lease import Answered, LeaseAnswer, Verb

Submit = Callable[["PulledMessage", LeaseAnswer], "asyncio.Future[Answered]"]


class PulledMessage(LeasedMessage):
    """A message of a lease that a program pulls. Its answer goes through the feed, which counts what is held."""

    __slots__ = ("_submit_to",)

    def __init__(self, message: ReceivedMessage[Any], lease: WorkerLease, submit: Submit) -> None:
        super().__init__(message, lease)
        self._submit_to = submit

    def forget_answer(self) -> None:
        """Allow another answer: the server refused the last one and changed nothing."""
        self.verb, self._result = None, None

    def nacked_by(self, result: asyncio.Future[Answered], reason: str) -> None:
        """Record a nack that covers this message and others."""
        self.verb, self.reason, self._result = Verb.NACK, reason, result

    def give_up(self, answer: LeaseAnswer) -> None:
        """Answer the message for the program, which took too long."""
        self.verb, self.reason, self._result = answer.verb, answer.reason, self._submit(answer)

    def _submit(self, answer: LeaseAnswer) -> asyncio.Future[Answered]:
        return self._submit_to(self, answer)


class HeldMessages:
    """The messages that the program holds, so that it never holds two messages of a key that it took separately.

    Keys are hashed only when a second message is asked for while one is held: a program that takes and answers one
    batch after the other never needs the hashes.
    """

    def __init__(self) -> None:
        self.order = Order.KEY
        self._new: dict[PulledMessage, None] = {}
        self._hashed: dict[PulledMessage, object] = {}
        self._counts: Counter[object] = Counter()
        self._parked: dict[object, deque[PulledMessage]] = {}

    def __len__(self) -> int:
        """Return how many messages the program holds."""
        return len(self._new) + len(self._hashed)

    @property
    def parked(self) -> int:
        """The number of messages that wait for an earlier message of their key."""
        return sum(map(len, self._parked.values()))

    def add(self, messages: Iterable[PulledMessage]) -> None:
        """Record messages that the program gets."""
        self._new.update(dict.fromkeys(messages))

    def is_free(self, leased: PulledMessage) -> bool:
        """Return whether the program holds no message of the same key. Park the message otherwise."""
        if self.order is Order.NONE or not (self._new or self._hashed):
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

    def unpark(self) -> list[PulledMessage]:
        """Return the messages that wait for an earlier one, and forget them."""
        parked, self._parked = self._parked, {}
        return [leased for waiting in parked.values() for leased in waiting]

    def all(self) -> list[PulledMessage]:
        """Return the messages that the program holds."""
        return [*self._new, *self._hashed]

    def _hash_new(self) -> None:
        new, self._new = self._new, {}
        for leased in new:
            key = key_of(leased, self.order)
            self._hashed[leased] = key
            self._counts[key] += 1
