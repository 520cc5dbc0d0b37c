"""Events in groups for the server's log: counted when they happen, and logged at most once a second per group.

Callers only add to plain numbers; a timer writes the lines. The module decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.coordinator.leasing.operations import DeadMessage
from lakelog.engine.leasing.journal import Journal
from lakelog.model.group import Group
from lakelog.reporting import Field, counted, log_event

EVERY_SECONDS = 1.0
_MAX_REASON = 200
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersChange:
    """How one write changed the members of a group. `expired` are the members whose session expired."""

    joined: int
    left: int
    expired: Sequence[str]
    total: int


@dataclass(slots=True)
class _Counts:
    """The events in one group since its last log line."""

    group: Group
    joined: int = 0
    left: int = 0
    sessions_expired: int = 0
    first_session: str = ""
    members: int | None = None
    leases_expired: int = 0
    first_owner: str = ""
    dead_letters: int = 0
    first_dead_letter: str = ""
    first_reason: str = ""


class GroupActivity:
    """The activity of all groups that this process decides for."""

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}
        self._timer: asyncio.TimerHandle | None = None

    def members_changed(self, group: Group, change: MembersChange) -> None:
        counts = self._of(group)
        counts.joined += change.joined
        counts.left += change.left
        counts.sessions_expired += len(change.expired)
        counts.first_session = counts.first_session or next(iter(change.expired), "")
        counts.members = change.total

    def leases_expired(self, journal: Journal, owners: Sequence[str]) -> None:
        counts = self._of(journal.group)
        counts.leases_expired += len(owners)
        counts.first_owner = counts.first_owner or owners[0]

    def died(self, journal: Journal, deaths: Sequence[DeadMessage]) -> None:
        counts = self._of(journal.group)
        if not counts.dead_letters:
            first = deaths[0]
            counts.first_dead_letter = f"{journal.topic.name} {journal.partition}:{first.offset}"
            counts.first_reason = first.reason.strip().partition("\n")[0][:_MAX_REASON]
        counts.dead_letters += len(deaths)

    def flush(self) -> None:
        """Write the lines of all groups with events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        for each in counts.values():
            _write(each)

    def _of(self, group: Group) -> _Counts:
        counts = self._counts.get(group.group_id)
        if counts is None:
            counts = self._counts[group.group_id] = _Counts(group)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(EVERY_SECONDS, self.flush)
        return counts


def _write(counts: _Counts) -> None:
    texts = [text for text in (_members(counts), _leases(counts), _dead_letters(counts)) if text]
    if not texts:
        return
    scope = counts.group.scope
    where = f"{scope.project}/{scope.environment}"
    name = counts.group.name if where == "default/default" else f"{counts.group.name} ({where})"
    fields: dict[str, Field] = {
        "joined": counts.joined,
        "left": counts.left,
        "sessions_expired": counts.sessions_expired,
        "members": counts.members,
        "leases_expired": counts.leases_expired,
        "dead_letters": counts.dead_letters,
        "first_dead_letter": counts.first_dead_letter,
        "first_reason": counts.first_reason,
    }
    log_event(
        _log,
        logging.INFO,
        "group_activity",
        f"Group {name}: {'; '.join(texts)}",
        group=counts.group.name,
        project=scope.project,
        environment=scope.environment,
        **{field: value for field, value in fields.items() if value},
    )


def _members(counts: _Counts) -> str:
    parts = []
    if counts.joined:
        parts.append(f"{counted(counts.joined, 'member')} joined")
    if counts.left:
        parts.append(f"{counted(counts.left, 'member')} left")
    if counts.sessions_expired:
        parts.append(_expired("session", counts.sessions_expired, "member", counts.first_session))
    return f"{', '.join(parts)} ({counts.members} in all)" if parts else ""


def _leases(counts: _Counts) -> str:
    return _expired("lease", counts.leases_expired, "owner", counts.first_owner) if counts.leases_expired else ""


def _expired(noun: str, number: int, holder: str, first: str) -> str:
    return f"{counted(number, noun)} of {holder} {first}{' and others' if number > 1 else ''} expired"


def _dead_letters(counts: _Counts) -> str:
    if not counts.dead_letters:
        return ""
    became = "became a dead letter" if counts.dead_letters == 1 else "became dead letters"
    first = "" if counts.dead_letters == 1 else "first: "
    about = f"{first}{counts.first_dead_letter}, {counts.first_reason}".rstrip(", ")
    return f"{counted(counts.dead_letters, 'message')} {became} ({about})"
