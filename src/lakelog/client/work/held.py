"""One leased message in a worker's hands: what it is, how long its handler may take, and what was said about it.

Lives in the worker's event loop. Handlers see it as a `Delivery`, in their own colour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from lakelog.client.group_values import Answer, Answered, Verb
from lakelog.client.messages import ReceivedMessage
from lakelog.client.work.answers import Answerer
from lakelog.errors import InvalidRequest, LeaseLost
from lakelog.model.group import MAX_REASON_BYTES
from lakelog.wire.leases import LeaseHead


def clipped(reason: str) -> str:
    """At most as long as is stored, and without what PostgreSQL cannot store in a text."""
    raw = reason.replace("\0", "\ufffd").encode("utf-8", errors="replace")[:MAX_REASON_BYTES]
    return raw.decode("utf-8", errors="ignore")


class Hand:
    """One lease in a worker's hands, with those of its messages that are not answered yet."""

    def __init__(self, lease: LeaseHead, lease_ms: int) -> None:
        self.lease = lease
        self.partition = lease.partition
        self.token = lease.token
        self.suspect = lease.suspect
        self.lease_ms = lease_ms
        self.kept = 0
        """Its number with the keeper."""
        self.until = 0.0
        """Until when the keeper was told to keep it."""
        self.open: set[int] = set()
        self.deadlines: dict[int, float] = {}
        """Until when the handlers that run may take, by offset."""
        self.stretched = False
        """Whether a handler was given another time than the usual."""
        self.lost = False


class Held:
    """A message, its place in a hand, and the answer to it: the first one that is given counts."""

    def __init__(
        self,
        message: ReceivedMessage[Any],
        hand: Hand,
        answerer: Answerer,
        timeout_seconds: float,
        prolonged: Callable[[Hand], None],
    ) -> None:
        self.message = message
        self.hand = hand
        self.attempt = hand.lease.deliveries.get(message.offset, 1)
        self.failures = hand.lease.failures.get(message.offset, 0)
        self.loop = asyncio.get_running_loop()
        self.verb: Verb | None = None
        """What was said about it."""
        self.reason = ""
        self.answered: Answered | None = None
        self.over = False
        self._answerer = answerer
        self._timeout_seconds = timeout_seconds
        self._prolonged = prolonged
        self._saying: asyncio.Future[Answered] | None = None

    async def settle(self, verb: Verb, *, reason: str = "", delay_seconds: float | None = None) -> Answered:
        """Says it, and returns when the server has accepted it; the same thing again gets the same answer."""
        if self._saying is None:
            if self.over:
                raise LeaseLost("This message was given back already: its handler took too long.")
            self.verb, self.reason = verb, reason
            delay_ms = None if delay_seconds is None else round(delay_seconds * 1000)
            self._saying = self._answerer.say(self.answer(verb, clipped(reason), delay_ms))
        elif verb != self.verb:
            raise InvalidRequest(f"This message was answered already, with {self.verb}.")
        # Whoever said it may be cancelled; what was said stands.
        self.answered = await asyncio.shield(self._saying)
        return self.answered

    async def extend(self, seconds: float | None = None) -> None:
        """Gives the handler so many seconds from now. Raises `LeaseLost` if the message is somebody else's already."""
        if self._saying is not None or self.over:
            raise InvalidRequest("This message was answered already.")
        more = self._timeout_seconds if seconds is None else seconds
        if more <= 0:
            raise InvalidRequest("A message is extended by more than no time.")
        await self._answerer.say(self.prolonging())
        if self.message.offset in self.hand.deadlines:
            self.hand.deadlines[self.message.offset] = time.monotonic() + more
            self.hand.stretched = True
            self._prolonged(self.hand)

    def answer(self, verb: Verb, reason: str = "", delay_ms: int | None = None) -> Answer:
        hand, offsets = self.hand, (self.message.offset,)
        return Answer(
            verb=verb, partition=hand.partition, token=hand.token, offsets=offsets, delay_ms=delay_ms, reason=reason
        )

    def prolonging(self, *, alone: bool = False) -> Answer:
        hand = self.hand
        return Answer(verb="extend", partition=hand.partition, token=hand.token, lease_ms=hand.lease_ms, alone=alone)
