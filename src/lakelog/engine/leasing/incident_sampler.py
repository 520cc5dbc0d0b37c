"""Prepares the incidents of a decision: limits their number, and computes their fingerprints.

A group whose messages all fail must not fill the database. Above the limit, incidents are counted, and the count is
stored with the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakelog.coordinator.leasing.incidents import LOST
from lakelog.model.fingerprint import fingerprint_of
from lakelog.model.group import MAX_REASON_BYTES
from lakelog.model.incident import MAX_INCIDENT_TRACEBACK, MAX_PER_SECOND, Incident, IncidentKind
from lakelog.model.tracebacks import cut_traceback

TIMED_OUT = "TimeoutError: the handler did not end within "
"""The beginning of the reason that a worker gives if a handler exceeds `ack_timeout`."""
_FORGET = 1000
_LOST_NUMBER = fingerprint_of(LOST).number


@dataclass(slots=True)
class _Second:
    """The incidents of a group in one second."""

    second: int
    stored: int = 0
    left_out: int = 0


class IncidentSampler:
    """Chooses the incidents that are stored; one per engine."""

    def __init__(self, limit: int = MAX_PER_SECOND) -> None:
        self._limit = limit
        self._seconds: dict[int, _Second] = {}

    def prepare(self, group_id: int, incidents: Sequence[Incident], now_ms: int) -> list[Incident]:
        """Return those of the incidents of a decision that are stored, with fingerprints. Deaths are always stored."""
        if not incidents:
            return []
        counts = self._of(group_id, now_ms // 1000)
        prepared = []
        for each in incidents:
            if counts.stored >= self._limit and each.kind is not IncidentKind.DEAD:
                counts.left_out += 1
                continue
            counts.stored += 1
            prepared.append(_prepared(each, counts.left_out))
            counts.left_out = 0
        return prepared

    def _of(self, group_id: int, second: int) -> _Second:
        counts = self._seconds.get(group_id)
        if counts is None:
            if len(self._seconds) >= _FORGET:
                self._seconds = {each: kept for each, kept in self._seconds.items() if kept.left_out}
            counts = self._seconds[group_id] = _Second(second)
        if counts.second != second:
            counts.second, counts.stored = second, 0
        return counts


def _prepared(incident: Incident, left_out: int) -> Incident:
    reason = incident.reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")
    traceback = cut_traceback(incident.traceback, MAX_INCIDENT_TRACEBACK) or None if incident.traceback else None
    kind = incident.kind
    if kind is IncidentKind.FAILED and reason.startswith(TIMED_OUT):
        kind = IncidentKind.TIMED_OUT
    return replace(
        incident,
        kind=kind,
        reason=reason,
        traceback=traceback,
        left_out=left_out,
        fingerprint=_number(reason, incident.traceback),
    )


def _number(reason: str, traceback: str | None) -> int:
    if reason == LOST:
        return _LOST_NUMBER
    # The whole traceback counts, as for dead letters.
    return fingerprint_of(reason, traceback).number if reason else 0
