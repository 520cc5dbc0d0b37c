"""Lanes: what makes a single publish safe to repeat without an idempotency key.

A lane is a random producer id with the next sequence of each partition. A call borrows an idle lane, so that at most
one call at a time counts in it; whoever cannot say how its call ended does not give the lane back. It sends nothing.
"""

from __future__ import annotations

import secrets
import time
from collections import deque

from lakelog.client import processes

IDLE_SECONDS = 3600.0
"""Servers forget a producer after a day without use: a lane that lay idle for long is not worth the risk."""


class ProducerSession:
    """A producer id and its next sequences."""

    __slots__ = ("_next", "producer", "used_at")

    def __init__(self) -> None:
        self.used_at = time.monotonic()
        self.renew()

    def renew(self) -> None:
        """Begins as a new producer: what the old one had sent can no longer be repeated in this lane."""
        self.producer = secrets.token_bytes(16)
        self._next: dict[int, int] = {}

    def sequence(self, partition: int) -> int:
        return self._next.get(partition, 0)

    def written(self, partition: int, sequence: int) -> None:
        self._next[partition] = sequence + 1


class SessionPool:
    """The idle lanes of one topic. Newest first, so that few are in use; safe for several threads."""

    def __init__(self) -> None:
        self._idle: deque[ProducerSession] = deque()
        processes.after_fork(self)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> ProducerSession:
        try:
            session = self._idle.pop()
        except IndexError:
            return ProducerSession()
        if time.monotonic() - session.used_at > IDLE_SECONDS:
            self._idle.clear()
            return ProducerSession()
        return session

    def give(self, session: ProducerSession) -> None:
        session.used_at = time.monotonic()
        self._idle.append(session)

    def clear(self) -> None:
        self._idle.clear()

    def reset_after_fork(self) -> None:
        # Parent and child must not count in the same lane.
        self._idle = deque()
