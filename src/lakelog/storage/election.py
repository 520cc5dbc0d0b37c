"""Storage protocol of elections: which process does work that one process of a cell is enough for.

An election saves work. It is no lock: a runner that is suspended during its work may overlap with its successor, so
every elected step must be safe to repeat.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class ElectionStore(Protocol):
    """Elections of one cell; the `elections` of a `PartitionStore`."""

    async def elect(self, task: str, runner: str, lease: timedelta) -> bool:
        """Return whether `runner` has the task, and if so, reserve it for `lease` from now on.

        The first runner gets the task, and keeps it while it asks again before its lease ends. A session lock would
        need a connection of its own, and a suspended process would hold it for ever.
        """
        ...

    async def resign(self, task: str, runner: str) -> None:
        """Give the task up, so that another runner gets it at once."""
        ...
