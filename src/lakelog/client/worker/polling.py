"""Decides when a worker requests messages, and which answers are sent with that call.

A busy worker sends the answers about its last messages with its call for the next ones: one call and one commit. Such a
call does not wait at the server, so that later answers can wait for the next one. While a call waits at the server for
messages, answers are sent separately.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from lakelog.client.worker.answers import AnswerBatch, AnswerSender

LINGER_SECONDS = 0.002
"""How long a call for few messages waits for other handlers to end. A call costs the same for one and for many."""
_MOST_HELD_SECONDS = 0.25
"""How long answers wait for the running call, whose server may be slow."""


@dataclass(frozen=True, slots=True)
class Poll:
    """One call for `count` messages, with answers. With `waits`, the server waits until there are messages."""

    count: int
    answers: AnswerBatch | None
    waits: bool


class Holder(Protocol):
    """The messages that a worker or a pull consumer holds."""

    in_flight: int
    """The number of messages without an answer."""

    @property
    def capacity(self) -> int:
        """The number of messages for which a call is made without a pause."""
        ...

    def room_with(self, finished: int) -> int:
        """Return how many more messages may be taken after `finished` messages are done."""
        ...


class Poller:
    """Decides about the calls of one worker or consumer. `look` is called after each answer."""

    def __init__(self, holder: Holder, sender: AnswerSender, batch_size: int) -> None:
        self.has_more = False
        """True if the last call got at least half of the messages that it requested."""
        self._holder = holder
        self._sender = sender
        self._batch_size = batch_size
        self._go = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_between = False

    async def next(self) -> Poll:
        """Wait until the next call is worthwhile, and return it."""
        while True:
            await self._wait()
            answers = self._sender.collect()
            count = self._wanted(0 if answers is None else answers.finished)
            if count:
                break
            if answers is not None:
                self._sender.put_back(answers)
        waits = answers is None and not self.has_more
        if waits:
            self._sender.send_directly()
        else:
            self._timer = asyncio.get_running_loop().call_later(_MOST_HELD_SECONDS, self._sender.send_directly)
        return Poll(count, answers, waits)

    def look(self) -> None:
        """Decide whether the next call is made now, within `LINGER_SECONDS`, or later."""
        if not self._is_between:
            return
        finished = self._sender.finished
        wanted = self._wanted(finished)
        if not wanted and not finished:
            # Answers that finish no message, such as extensions, make no room for others.
            self._sender.send_pending()
        elif wanted >= min(self._batch_size, self._holder.capacity) or finished == self._holder.in_flight:
            self._go.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._go.set)

    def close(self) -> None:
        """Send answers in separate calls: there are no more calls for messages."""
        self._stop_timer()
        self._sender.send_directly()

    async def _wait(self) -> None:
        self._stop_timer()
        self._go.clear()
        self._sender.hold()
        self._is_between = True
        self.look()
        try:
            await self._go.wait()
        finally:
            self._is_between = False
            self._stop_timer()

    def _wanted(self, finished: int) -> int:
        return min(self._batch_size, self._holder.room_with(finished))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
