"""Storage protocol of incidents and of clusters of dead letters; the `incidents` of a `GroupStore`.

Incidents are written by `GroupStore.journals_commit`, in the entry of their decision. The rules of `store` apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakelog.model.incident import Incident

if TYPE_CHECKING:
    from lakelog.storage.groups import StoredDeadLetter

MAX_CHAIN = 20
"""The most redrives of one message that `dead_chain` follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIncident:
    """An incident, with the time at which it was written."""

    group_id: int
    pid: int
    at_ms: int
    incident: Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    """The dead letters in the state dead of a group and a topic that have the same fingerprint, and the newest of them.

    Attributes:
        fingerprint: The fingerprint; None for those that an older version wrote.
        count: How many there are.
        first_ms: When the first of them died.
        last_ms: When the last of them died.
        pid: The partition of the last one.
        offset: The offset of the last one.
        reason: The reason of the last one.
        traceback: The traceback of the last one; None if it has none.
    """

    fingerprint: int | None
    count: int
    first_ms: int
    last_ms: int
    pid: int
    offset: int
    reason: str
    traceback: str | None


class IncidentStore(Protocol):
    """The incidents of one cell, and the clusters of its dead letters."""

    async def incidents_read(self, pid: int, offsets: Sequence[int], *, limit: int) -> list[StoredIncident]:
        """Return the incidents of these messages in all groups, the oldest first: of each the newest `limit`."""
        ...

    async def failures_count(
        self, group_ids: Sequence[int], since_ms: int, until_ms: int
    ) -> dict[tuple[int, int], int]:
        """Return how many deliveries failed, timed out or were lost between two times, last deliveries included.

        The result is by group id and incarnation of the topic, without zeros, with those that were only counted.
        """
        ...

    async def incidents_trim(self) -> int:
        """Drop incidents after `KEPT`, in whole tables, and return how many tables were dropped."""
        ...

    async def dead_clusters(
        self, group_id: int, pids: Sequence[int], *, fingerprint: int | None = None, limit: int
    ) -> list[StoredCluster]:
        """Return the clusters of dead letters in the state dead, the largest first; each is of one topic.

        A `fingerprint` chooses one cluster, and the others are not counted.
        """
        ...

    async def dead_chain(self, group_ids: Sequence[int], pid: int, offsets: Sequence[int]) -> list[StoredDeadLetter]:
        """Return the dead letters of these messages, and those of the messages that were redriven for them.

        At most `MAX_CHAIN` redrives are followed. The dead letters come without payloads, and by group id and time.
        """
        ...
