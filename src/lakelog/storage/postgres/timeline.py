"""The timeline of a database, which PostgreSQL raises when a standby is promoted.

Offsets and versions may then have another meaning.

A session stays on the timeline on which it was opened, because a node that loses its role restarts. Each session
therefore stores its timeline, and results are compared with the highest timeline that this process has seen, without
another statement. This module opens no connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from weakref import WeakSet, WeakValueDictionary

from lakelog.reporting import log_event
from lakelog.storage.postgres.address import DatabaseAddress

_log = logging.getLogger(__name__)


class Follower:
    """An object that depends on the timeline of a database: its connections, or the caches of an engine."""

    def __init__(self, replaced: Callable[[], None]) -> None:
        self.replaced = replaced


class Timeline:
    """The highest timeline of one database that this process has seen; 0 before the first session."""

    def __init__(self, address: DatabaseAddress) -> None:
        self.number = 0
        self.is_unconfirmed = False
        """True if a wait for a synchronous standby was cancelled: the write is visible, but the standby may not
        have it.
        """
        self._address = address
        self._followers: WeakSet[Follower] = WeakSet()

    def follow(self, replaced: Callable[[], None]) -> Follower:
        """Call `replaced` when the timeline rises. The callback stays registered while the caller keeps the result."""
        follower = Follower(replaced)
        self._followers.add(follower)
        return follower

    def saw(self, number: int) -> None:
        """Record the timeline of a new session.

        If it is higher, everything that belongs to the lower one is dropped.
        """
        before, self.number = self.number, max(self.number, number)
        if not 0 < before < number:
            return
        message = (
            f"PostgreSQL at {self._address} was replaced by a promoted standby (timeline {number} after {before}). "
            "Caches were dropped. Without synchronous replication, the last writes may be lost."
        )
        log_event(_log, logging.WARNING, "database_promoted", message, database=str(self._address), timeline=number)
        for follower in list(self._followers):
            follower.replaced()


_timelines: WeakValueDictionary[DatabaseAddress, Timeline] = WeakValueDictionary()


def timeline_of(address: DatabaseAddress) -> Timeline:
    """Return the timeline of the database, which all users of this process share."""
    return _timelines.setdefault(address, Timeline(address))
