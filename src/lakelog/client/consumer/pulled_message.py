"""A leased message in the hands of a program that pulls, and messages of a lease that it gets together.

They belong to the consumer's event loop. Programs see a message as a `Delivery` or an `AsyncDelivery`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, overload

from lakelog.client.message_answers import HeldSequence
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.model.lease import Answered, LeaseAnswer, Verb

Submit = Callable[["PulledMessage", LeaseAnswer], "asyncio.Future[Answered]"]


class PulledMessage(LeasedMessage):
    """A message of a lease that a program pulls. Its answer goes through the feed, which counts what is held."""

    __slots__ = ("_submit_to", "portion")

    count = 1

    def __init__(
        self, message: ReceivedMessage[Any], lease: WorkerLease, submit: Submit, portion: LeasePortion | None = None
    ) -> None:
        super().__init__(message, lease)
        self._submit_to = submit
        self.portion = portion
        """The portion with which the program got the message; None if it got the message alone."""

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


class LeasePortion:
    """Messages of one lease that a program gets together. It makes an object for a single answer when one is needed.

    A program that acks whole batches never needs these objects: they would cost more than the messages themselves.
    Threads of the program may call `at`; all other methods belong to the event loop.
    """

    __slots__ = ("_made", "_result", "_submit", "is_done", "is_whole", "lease", "messages", "started")

    def __init__(self, lease: WorkerLease, messages: Sequence[ReceivedMessage[Any]], submit: Submit) -> None:
        self.lease = lease
        self.messages = messages
        self.started = 0.0
        """The time at which the program got the messages."""
        self.is_whole = True
        """True while no message has an answer of its own."""
        self.is_done = False
        self._result: asyncio.Future[Answered] | None = None
        self._submit = submit
        self._made: dict[int, PulledMessage] = {}

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.messages)

    @property
    def message(self) -> ReceivedMessage[Any]:
        """The first message. Its deadline is that of the portion while the portion is whole."""
        return self.messages[0]

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages."""
        return [message.offset for message in self.messages]

    @property
    def is_open(self) -> bool:
        """True if the portion is whole and has no answer."""
        return self.is_whole and self._result is None and not self.is_done

    def part(self, first: int, end: int) -> LeasePortion:
        """Return a portion with some of the messages."""
        return LeasePortion(self.lease, self.messages[first:end], self._submit)

    def single(self, index: int) -> PulledMessage:
        """Return a message that the program gets alone."""
        return PulledMessage(self.messages[index], self.lease, self._submit)

    def at(self, index: int) -> PulledMessage:
        """Return the object for the answer to one message."""
        found = self._made.get(index)
        if found is None:
            made = PulledMessage(self.messages[index], self.lease, self._submit, self)
            found = self._made.setdefault(index, made)
            # After it is stored: the event loop may record the answer to the portion at the same time.
            if self._result is not None and found.verb is None:
                found.acked_by(self._result)
            if self.is_done:
                found.is_done = True
        return found

    def all(self) -> list[PulledMessage]:
        """Return the objects for the answers to all messages."""
        return [self.at(index) for index in range(len(self.messages))]

    def separate(self) -> list[PulledMessage]:
        """Let each message have an answer and a deadline of its own, and return the objects for them."""
        self.is_whole = False
        deadlines = self.lease.deadlines
        if self.message.offset in deadlines:
            deadlines.update(dict.fromkeys(self.offsets, deadlines[self.message.offset]))
        return self.all()

    def acked_by(self, result: asyncio.Future[Answered]) -> None:
        """Record an ack of all messages."""
        self._result = result
        for made in list(self._made.values()):
            made.acked_by(result)

    def forget_answer(self) -> None:
        """Allow another answer: the server refused the last one and changed nothing."""
        self._result = None
        for made in list(self._made.values()):
            made.forget_answer()

    def finish(self) -> None:
        """Record that the program no longer holds the messages."""
        self.is_done = True
        # Messages refer to their portion. Without the other direction, no garbage collection is needed.
        ended, self._made = self._made, {}
        for made in list(ended.values()):
            made.is_done = True


Part = PulledMessage | LeasePortion
"""One or several messages of a lease that a program gets."""


class PulledBatch(HeldSequence[PulledMessage]):
    """The messages that a program gets with one call. Threads of the program use it."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self._messages = _messages(parts)
        self._ends: list[int] = []
        """The index after the last message of each part."""

    @property
    def messages(self) -> Sequence[ReceivedMessage[Any]]:
        return self._messages

    @overload
    def __getitem__(self, index: int) -> PulledMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[PulledMessage]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._at(each) for each in range(*index.indices(len(self)))]
        return self._at(range(len(self))[index])

    def __iter__(self) -> Iterator[PulledMessage]:
        for part in self.parts:
            if isinstance(part, PulledMessage):
                yield part
            else:
                yield from map(part.at, range(part.count))

    def __contains__(self, held: object) -> bool:
        return isinstance(held, PulledMessage) and (held in self.parts or held.portion in self.parts)

    def __len__(self) -> int:
        return len(self._messages)

    def _at(self, index: int) -> PulledMessage:
        if not self._ends:
            self._ends = list(accumulate(part.count for part in self.parts))
        number = bisect_right(self._ends, index)
        part = self.parts[number]
        return part if isinstance(part, PulledMessage) else part.at(index - self._ends[number] + part.count)


def _messages(parts: Sequence[Part]) -> Sequence[ReceivedMessage[Any]]:
    found = [[part.message] if isinstance(part, PulledMessage) else part.messages for part in parts]
    return found[0] if len(found) == 1 else list(chain.from_iterable(found))
