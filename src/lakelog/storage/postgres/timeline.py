"""The timeline of a database: PostgreSQL raises it when a standby is promoted, and offsets and versions may then have
another meaning.

A session stays on the timeline on which it was opened, because a node that loses its role restarts. So each session
carries its timeline, and results are compared with the highest one that this process has seen, without a statement of
their own. This module opens no connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from weakref import WeakSet, WeakValueDictionary

from lakelog.reporting import log_event
from lakelog.storage.postgres.address import DatabaseAddress

_log = logging.getLogger(__name__)


class Follower:
    """Something that depends on the timeline of a database: its connections, and the caches of an engine."""

    def __init__(self, replaced: Callable[[], None]) -> None:
        self.replaced = replaced


class Timeline:
    """The highest timeline of one database that this process has seen; 0 before the first session."""

    def __init__(self, address: DatabaseAddress) -> None:
        self.number = 0
        self.is_unconfirmed = False
        """A wait for a synchronous standby was cancelled: what it wrote is visible, and the standby may not have it."""
        self._address = address
        self._followers: WeakSet[Follower] = WeakSet()

    def follow(self, replaced: Callable[[], None]) -> Follower:
        """Call `replaced` when the timeline rises. The caller keeps the result as long as it wants to be called."""
        follower = Follower(replaced)
        self._followers.add(follower)
        return follower

    def saw(self, number: int) -> None:
        """Record the timeline of a new session. If it is higher, everything of the lower one is left."""
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
