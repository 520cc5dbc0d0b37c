"""Producer sessions, which make a single publish safe to repeat without an idempotency key.

A session is a random producer id with the next sequence of each partition. A call borrows an idle session, so that one
call at a time uses it. A call with an unknown outcome does not return its session. Nothing is sent here.
"""

from __future__ import annotations

import secrets
import time
from collections import deque

from lakelog.client import processes

IDLE_SECONDS = 3600.0
"""Servers forget a producer after a day without use, so a session that was idle for long is not used again."""


class ProducerSession:
    """A producer id and its next sequences."""

    __slots__ = ("_next", "producer", "used_at")

    def __init__(self) -> None:
        self.used_at = time.monotonic()
        self.renew()

    def renew(self) -> None:
        """Start again as a new producer. Messages of the old one can no longer be repeated in this session."""
        self.producer = secrets.token_bytes(16)
        self._next: dict[int, int] = {}

    def sequence(self, partition: int) -> int:
        return self._next.get(partition, 0)

    def written(self, partition: int, sequence: int) -> None:
        self._next[partition] = sequence + 1


class SessionPool:
    """The idle sessions of one topic. The newest is used first, so that few are in use. Thread-safe."""

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
        # Parent and child must not use the same session.
        self._idle = deque()
