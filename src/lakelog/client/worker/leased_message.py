"""One leased message of a worker: the message, how long its handler may run, and its answer.

It belongs to the worker's event loop. Handlers see it as a `Delivery` or an `AsyncDelivery`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.answers import AnswerSender
from lakelog.client.worker.delivery_tracing import DeliverySpan
from lakelog.client.worker.tracebacks import traceback_of
from lakelog.errors import InvalidRequest, LeaseLost
from lakelog.model.group import MAX_REASON_BYTES, Order
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from lakelog.model.partitioner import murmur2
from lakelog.wire.leases import LeaseHead

_NO_CHAIN: deque[LeasedMessage] = deque()


def clipped(reason: str) -> str:
    """Return the reason in the form in which it is stored: clipped, and without NUL characters."""
    raw = reason.replace("\0", "\ufffd").encode("utf-8", errors="replace")[:MAX_REASON_BYTES]
    return raw.decode("utf-8", errors="ignore")


class WorkerLease:
    """One lease of a worker, with the messages that have no answer yet."""

    def __init__(
        self,
        head: LeaseHead,
        lease_ms: int,
        sender: AnswerSender,
        timeout_seconds: float,
        moved: Callable[[WorkerLease], None],
        group: str = "",
    ) -> None:
        self.head = head
        self.partition = head.partition
        self.token = head.token
        self.suspect = head.suspect
        self.lease_ms = lease_ms
        self.sender = sender
        self.timeout_seconds = timeout_seconds
        self.moved = moved
        """Called when the deadline of a handler changes."""
        self.group = group
        self.loop = asyncio.get_running_loop()
        self.kept = 0
        """The number of the lease at the keeper."""
        self.until = 0.0
        """The time until which the keeper keeps the lease."""
        self.open: set[int] = set()
        self.deadlines: dict[int, float] = {}
        """The deadlines of the running handlers, by offset."""
        self.stretched = False
        """True if a handler has another deadline than the default."""
        self.lost = False
        self.answering: set[int] = set()
        """The open offsets whose answer is sent; only pull consumers record it."""


class LeasedMessage:
    """A message of a lease and its answer. The first answer counts."""

    __slots__ = (
        "_result",
        "began",
        "chain",
        "error",
        "holds_once",
        "is_done",
        "lease",
        "message",
        "once",
        "reason",
        "span",
        "started",
        "verb",
    )

    def __init__(self, message: ReceivedMessage[Any], lease: WorkerLease) -> None:
        self.message = message
        self.lease = lease
        self.chain: deque[LeasedMessage] = _NO_CHAIN
        """The messages that wait for this one; set when it gets its concurrency slot."""
        self.verb: Verb | None = None
        """The answer."""
        self.reason = ""
        self.error: BaseException | None = None
        """The error of a failed handler; for an explicit nack, the exception that the handler was handling."""
        self.is_done = False
        self.began = 0.0
        """The time at which the message got its concurrency slot; 0 while it has none."""
        self.started = 0.0
        """The time at which its handler started; 0 before."""
        self.span: DeliverySpan | None = None
        """The span of the running handler, if the process traces."""
        self.once: str | None = None
        """The hash of the value of which the group accepts one run; None without `once`, or without a value."""
        self.holds_once = False
        """True while no other message of this process with the same value may run."""
        self._result: asyncio.Future[Answered] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.lease.loop

    @property
    def group(self) -> str:
        return self.lease.group

    @property
    def attempt(self) -> int:
        return self.lease.head.deliveries.get(self.message.offset, 1)

    @property
    def failures(self) -> int:
        return self.lease.head.failures.get(self.message.offset, 0)

    def acked_by(self, saying: asyncio.Future[Answered]) -> None:
        """Record an ack that covers this message and others."""
        self.verb, self._result = Verb.ACK, saying
        if self.span is not None:
            self.span.answered_by(Verb.ACK, None, saying)

    async def settle(
        self, verb: Verb, *, reason: str = "", delay_seconds: float | None = None, error: BaseException | None = None
    ) -> Answered:
        """Send the answer, and return when the server has accepted it; a repeat of it gets the same result.

        The traceback of `error` goes with a nack or fail.
        """
        if self._result is None:
            if self.is_done:
                raise LeaseLost("This message was already given back: its time was over, or its lease had ended.")
            self.verb, self.reason, self.error = verb, reason, error
            delay_ms = None if delay_seconds is None else round(delay_seconds * 1000)
            answer = self.answer(verb, clipped(reason), delay_ms)
            if error is not None:
                answer = structs.replace(answer, traceback=traceback_of(error))
            self._result = self._submit(answer)
            if self.span is not None:
                self.span.answered_by(verb, error, self._result)
        elif verb != self.verb:
            raise InvalidRequest(f"This message was already answered, with {self.verb}.")
        # The caller may be cancelled, but its answer is sent.
        return await asyncio.shield(self._result)

    def end_span(self, verb: Verb) -> None:
        """End the span of a handler whose message is given back without an awaited answer."""
        if self.span is not None:
            self.span.end(verb)

    async def extend(self, seconds: float | None = None) -> None:
        """Give the handler more time, counted from now. Raise `LeaseLost` if another worker may have the message."""
        if self._result is not None or self.is_done:
            raise InvalidRequest("This message was already answered.")
        await extend_all([self], seconds)

    def _submit(self, answer: LeaseAnswer) -> asyncio.Future[Answered]:
        return self.lease.sender.submit(answer)

    def answer(self, verb: Verb, reason: str = "", delay_ms: int | None = None) -> LeaseAnswer:
        lease, offsets = self.lease, (self.message.offset,)
        answer = LeaseAnswer(
            verb=verb, partition=lease.partition, token=lease.token, offsets=offsets, delay_ms=delay_ms, reason=reason
        )
        if verb is Verb.ACK and self.once is not None:
            return structs.replace(answer, once={self.message.offset: self.once})
        return answer

    def extension(self, *, alone: bool = False) -> LeaseAnswer:
        lease = self.lease
        return LeaseAnswer(
            verb=Verb.EXTEND, partition=lease.partition, token=lease.token, lease_ms=lease.lease_ms, alone=alone
        )


async def extend_all(messages: Sequence[LeasedMessage], seconds: float | None) -> None:
    """Give the handler of these messages more time, with one extension for each lease."""
    by_lease: dict[WorkerLease, list[LeasedMessage]] = {}
    for leased in messages:
        by_lease.setdefault(leased.lease, []).append(leased)
    await asyncio.gather(*(lease.sender.submit(some[0].extension()) for lease, some in by_lease.items()))
    for lease, some in by_lease.items():
        until = time.monotonic() + (lease.timeout_seconds if seconds is None else seconds)
        running = [leased.message.offset for leased in some if leased.message.offset in lease.deadlines]
        if running:
            lease.deadlines.update(dict.fromkeys(running, until))
            lease.stretched = True
            lease.moved(lease)


def key_of(leased: LeasedMessage, order: Order) -> object:
    """Return what orders the message: its partition, or the hash of its key; None if nothing does."""
    if order is Order.PARTITION:
        return ("partition", leased.message.partition)
    key = leased.message.key
    # By the same hash as the server, which treats two keys with the same hash as one key.
    return None if key is None or order is Order.NONE else murmur2(key)
