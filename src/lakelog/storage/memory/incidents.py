"""Incidents and clusters of dead letters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from lakelog.model.incident import KEPT, Incident, IncidentKind
from lakelog.model.kinds import DeadLetterState
from lakelog.model.message import PARTITION_BITS
from lakelog.storage.groups import DeadLetterKey, JournalEntry, StoredDeadLetter, storable
from lakelog.storage.incidents import MAX_CHAIN, StoredCluster, StoredIncident

_KEPT_MS = KEPT // timedelta(milliseconds=1)
_FAILURES = (IncidentKind.FAILED, IncidentKind.TIMED_OUT, IncidentKind.LOST, IncidentKind.DEAD)


class MemoryIncidents:
    """Implements `lakelog.storage.incidents.IncidentStore`. `dead` has the dead letters of all groups."""

    def __init__(self, now: Callable[[], int], dead: Mapping[tuple[int, DeadLetterKey], StoredDeadLetter]) -> None:
        self._now = now
        self._dead = dead
        self._incidents: list[StoredIncident] = []

    def note(self, entry: JournalEntry, now: int) -> None:
        """Keep the incidents of an entry that is written at this time."""
        self._incidents += [_stored(entry, each, now) for each in entry.incidents]

    async def incidents_read(self, pid: int, offsets: Sequence[int], *, limit: int) -> list[StoredIncident]:
        await asyncio.sleep(0)
        found: list[StoredIncident] = []
        for offset in set(offsets):
            own = [each for each in self._incidents if (each.pid, each.incident.offset) == (pid, offset)]
            found += sorted(own, key=lambda each: (each.at_ms, each.incident.deliveries))[-limit:]
        return sorted(
            found, key=lambda each: (each.at_ms, each.incident.offset, each.incident.deliveries, each.group_id)
        )

    async def failures_count(
        self, group_ids: Sequence[int], since_ms: int, until_ms: int
    ) -> dict[tuple[int, int], int]:
        await asyncio.sleep(0)
        found: dict[tuple[int, int], int] = {}
        for each in self._incidents:
            is_in_time = since_ms <= each.at_ms < until_ms
            if is_in_time and _is_failure(each.incident) and each.group_id in group_ids:
                place = (each.group_id, each.pid >> PARTITION_BITS)
                found[place] = found.get(place, 0) + 1 + each.incident.left_out
        return found

    async def incidents_trim(self) -> int:
        await asyncio.sleep(0)
        kept = [each for each in self._incidents if each.at_ms >= self._now() - _KEPT_MS]
        dropped = int(len(kept) < len(self._incidents))
        self._incidents = kept
        return dropped

    async def dead_clusters(
        self, group_id: int, pids: Sequence[int], *, fingerprint: int | None = None, limit: int
    ) -> list[StoredCluster]:
        await asyncio.sleep(0)
        by_place: dict[tuple[int | None, int], list[StoredDeadLetter]] = {}
        for (group, key), letter in self._dead.items():
            is_chosen = fingerprint is None or letter.fingerprint == fingerprint
            if group == group_id and key.pid in pids and letter.state is DeadLetterState.DEAD and is_chosen:
                by_place.setdefault((letter.fingerprint, key.pid >> PARTITION_BITS), []).append(letter)
        found = [_cluster(fingerprint, letters) for (fingerprint, _), letters in by_place.items()]
        return sorted(
            found, key=lambda each: (-each.count, -each.last_ms, each.fingerprint is None, each.fingerprint or 0)
        )[:limit]

    async def dead_chain(self, group_ids: Sequence[int], pid: int, offsets: Sequence[int]) -> list[StoredDeadLetter]:
        await asyncio.sleep(0)
        found: list[StoredDeadLetter] = []
        for group_id in sorted(set(group_ids)):
            own = [each for (group, key), each in self._dead.items() if group == group_id and key.pid == pid]
            wanted, new = set(offsets), set(offsets)
            for _ in range(MAX_CHAIN):
                new = {each.redriven_to for each in own if each.key.offset in new and each.redriven_to is not None}
                wanted |= new
            chain = [replace(each, payload=None) for each in own if each.key.offset in wanted]
            found += sorted(chain, key=lambda each: (each.at_ms, each.key.offset))
        return found


def _is_failure(incident: Incident) -> bool:
    """Return whether the delivery failed. A last failure without a dead letter is discarded, with a fingerprint."""
    return incident.kind in _FAILURES or (incident.kind is IncidentKind.DISCARDED and incident.fingerprint != 0)


def _stored(entry: JournalEntry, given: Incident, now: int) -> StoredIncident:
    incident = replace(
        given,
        owner=storable(given.owner),
        reason=storable(given.reason),
        traceback=None if given.traceback is None else storable(given.traceback),
    )
    return StoredIncident(group_id=entry.group_id, pid=entry.pid, at_ms=now, incident=incident)


def _cluster(fingerprint: int | None, letters: Iterable[StoredDeadLetter]) -> StoredCluster:
    ordered = sorted(letters, key=lambda each: (each.at_ms, each.key.pid, each.key.offset, each.key.epoch))
    first, last = ordered[0], ordered[-1]
    return StoredCluster(
        fingerprint=fingerprint,
        count=len(ordered),
        first_ms=first.at_ms,
        last_ms=last.at_ms,
        pid=last.key.pid,
        offset=last.key.offset,
        reason=last.reason,
        traceback=last.traceback,
    )
