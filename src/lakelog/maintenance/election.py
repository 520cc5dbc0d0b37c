"""Elects one process of a cell for a task that need not run everywhere."""

from __future__ import annotations

import secrets
from datetime import timedelta

from lakelog.storage.store import PartitionStore

_SHORTEST_LEASE = timedelta(seconds=10)


class Election:
    """The candidate of this process for one task, in any number of cells.

    The task moves to another process when the runner does not ask for three intervals, or resigns.
    """

    def __init__(self, task: str, *, every_seconds: float, lease: timedelta | None = None) -> None:
        """Create the candidate. By default, its lease is three intervals, and at least 10 seconds."""
        self._task = task
        self._runner = secrets.token_hex(8)
        self._lease = lease or max(_SHORTEST_LEASE, timedelta(seconds=3 * every_seconds))

    async def is_won(self, store: PartitionStore) -> bool:
        """Return whether this process has the task in the cell, until its next call at least."""
        return await store.elections.elect(self._task, self._runner, self._lease)

    async def resign(self, store: PartitionStore) -> None:
        """Let another process take the task over at once."""
        await store.elections.resign(self._task, self._runner)
