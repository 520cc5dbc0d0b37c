"""A `GroupStore` in memory: the journals, members, heartbeats and dead letters of one cell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.kinds import DeadLetterState
from lakelog.storage.changes import KnownRows
from lakelog.storage.groups import (
    JOURNAL_GRACE_SECONDS,
    JOURNAL_READ_ROWS,
    ONCE_MEMORY,
    CommitResult,
    CommitStatus,
    DeadLetterKey,
    JournalEntry,
    JournalRead,
    JournalRequest,
    JournalRow,
    MembersRead,
    StoredDeadLetter,
    storable,
)
from lakelog.storage.memory.clock import Clock, milliseconds
from lakelog.storage.memory.incidents import MemoryIncidents
from lakelog.storage.store import Append, Appended, Refused

_GRACE_MS = int(JOURNAL_GRACE_SECONDS * 1000)
_ONCE_MS = ONCE_MEMORY // timedelta(milliseconds=1)
_HEARTBEAT_MEMORY_MS = 24 * 3600 * 1000


@dataclass(slots=True, kw_only=True)
class _Journal:
    """Rows from version `first` on, each with the time at which it was written."""

    first: int = 1
    rows: list[tuple[JournalRow, int]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first - 1 + len(self.rows)

    @property
    def newest(self) -> tuple[int, int]:
        """The version and the nonce of the last row; zeros without rows."""
        return (self.last, self.rows[-1][0].nonce) if self.rows else (0, 0)

    def from_version(self, version: int) -> list[JournalRow]:
        return [row for row, _ in self.rows[max(0, version - self.first) :]]

    def snapshot_version(self, before_ms: int | None = None) -> int:
        """Return the version of the newest snapshot, or of the newest snapshot before a time; 0 if there is none."""
        for row, at_ms in reversed(self.rows):
            if row.snapshot and (before_ms is None or at_ms < before_ms):
                return row.version
        return 0

    def nonce(self, version: int) -> int | None:
        """Return the nonce of a version: 0 before the first one, None if there is no such row."""
        if version == 0:
            return 0
        return self.rows[version - self.first][0].nonce if self.first <= version <= self.last else None

    def behind(self, after: int, nonce: int) -> list[JournalRow]:
        is_known = self.nonce(after) in (nonce, None)
        if after == self.last and is_known:
            return []
        there = self.first <= after + 1 <= self.last and is_known
        snapshot = self.snapshot_version()
        if there and (self.last - after <= JOURNAL_READ_ROWS or snapshot <= after):
            return self.from_version(after + 1)
        return self.from_version(snapshot)

    def cut(self, before_ms: int) -> int:
        trimmed = max(0, self.snapshot_version(before_ms) - self.first)
        del self.rows[:trimmed]
        self.first += trimmed
        return trimmed


class MemoryGroups:
    """The `groups` of a `MemoryStore`, which provides the check for deleted partitions and the append."""

    def __init__(
        self, clock: Clock, is_deleted: Callable[[int], bool], append: Callable[[Append], Appended | Refused]
    ) -> None:
        self._clock = clock
        self._is_deleted = is_deleted
        self._append = append
        self._journals: dict[tuple[int, int], _Journal] = {}
        self._members: dict[int, list[tuple[int, bytes, int]]] = {}
        self._seen: dict[tuple[int, str], int] = {}
        self._dead: dict[tuple[int, DeadLetterKey], StoredDeadLetter] = {}
        self._once: dict[tuple[int, int, bytes], int] = {}
        """When a run was accepted, by group id, incarnation of the topic, and hash of the value."""
        self.incidents = MemoryIncidents(self._now, self._dead)

    async def journals_read(self, asks: Sequence[JournalRequest]) -> list[JournalRead]:
        await asyncio.sleep(0)
        now = self._now()
        none = _Journal()
        journals = [self._journals.get((ask.group_id, ask.pid), none) for ask in asks]
        return [
            JournalRead(rows=journal.behind(ask.after, ask.after_nonce), clock_ms=now)
            for ask, journal in zip(asks, journals, strict=True)
        ]

    async def journals_newest(self, places: Sequence[tuple[int, int]]) -> list[JournalRow | None]:
        await asyncio.sleep(0)
        journals = [self._journals.get(place) for place in places]
        return [journal.rows[-1][0] if journal is not None and journal.rows else None for journal in journals]

    def changed_journals(self, known: KnownRows) -> set[tuple[int, int]]:
        """Return the journals whose newest row is another one."""
        none = _Journal()
        newest = {place: self._journals.get(place, none) for place in known.journals}
        return {place for place, row in known.journals.items() if newest[place].newest != row}

    def changed_members(self, known: KnownRows) -> set[int]:
        """Return the groups whose membership has another version."""
        present = {group_id: self._members.get(group_id, [(0, b"", 0)])[-1][0] for group_id in known.members}
        return {group_id for group_id, version in known.members.items() if present[group_id] != version}

    async def journals_commit(self, entries: Sequence[JournalEntry]) -> list[CommitResult]:
        await asyncio.sleep(0)
        now = self._now()
        # PostgreSQL cannot tell whether the earlier entry of a commit with the same value is written.
        seen: set[tuple[int, int, bytes]] = set()
        return [self._commit_values(entry, now, seen) for entry in entries]

    async def once_find(self, group_id: int, incarnation: int, values: Collection[bytes]) -> frozenset[bytes]:
        await asyncio.sleep(0)
        after = self._now() - _ONCE_MS
        return frozenset(value for value in values if self._once.get((group_id, incarnation, value), after) > after)

    async def journals_trim(self, dropped_groups: Collection[int] = ()) -> int:
        await asyncio.sleep(0)
        now = self._now()
        trimmed = 0
        for (group_id, pid), journal in list(self._journals.items()):
            if group_id in dropped_groups or self._is_deleted(pid):
                trimmed += len(self._journals.pop((group_id, pid)).rows) + self._drop_dead(group_id, pid)
            else:
                trimmed += journal.cut(now - _GRACE_MS)
        for group_id in list(self._members):
            trimmed += self._trim_members(group_id, now, dropped=group_id in dropped_groups)
        self._seen = {
            member: seen_ms
            for member, seen_ms in self._seen.items()
            if member[0] not in dropped_groups and seen_ms >= now - _HEARTBEAT_MEMORY_MS
        }
        self._once = {
            value: at_ms
            for value, at_ms in self._once.items()
            if value[0] not in dropped_groups and at_ms > now - _ONCE_MS
        }
        return trimmed

    async def members_read(self, group_id: int) -> MembersRead:
        return (await self.members_list([group_id]))[0]

    async def members_list(self, group_ids: Sequence[int]) -> list[MembersRead]:
        await asyncio.sleep(0)
        return [self._members_read(group_id) for group_id in group_ids]

    def _members_read(self, group_id: int) -> MembersRead:
        version, body, _ = self._members.get(group_id, [(0, b"", 0)])[-1]
        seen = {member_id: seen_ms for (group, member_id), seen_ms in self._seen.items() if group == group_id}
        return MembersRead(version=version, body=body, seen_ms=seen, clock_ms=self._now())

    async def members_write(self, group_id: int, version: int, body: bytes) -> bool:
        await asyncio.sleep(0)
        rows = self._members.setdefault(group_id, [])
        if version - 1 != (rows[-1][0] if rows else 0):
            return False
        rows.append((version, body, self._now()))
        return True

    async def heartbeats_write(self, seen: Collection[tuple[int, str]]) -> int:
        await asyncio.sleep(0)
        now = self._now()
        for member in seen:
            self._seen[member] = max(now, self._seen.get(member, now))
        return now

    async def heartbeats_drop(self, group_id: int, member_ids: Collection[str]) -> None:
        await asyncio.sleep(0)
        for member_id in member_ids:
            self._seen.pop((group_id, member_id), None)

    async def dead_list(
        self,
        group_id: int,
        pids: Sequence[int],
        *,
        state: DeadLetterState = DeadLetterState.DEAD,
        fingerprint: int | None = None,
        after: DeadLetterKey | None = None,
        limit: int = 100,
    ) -> list[StoredDeadLetter]:
        await asyncio.sleep(0)
        found = [
            letter
            for letter in self._of(group_id, pids)
            if letter.state is state and fingerprint in (None, letter.fingerprint)
        ]
        if after is not None:
            found = [letter for letter in found if _order(letter.key) > _order(after)]
        return sorted(found, key=lambda letter: _order(letter.key))[: max(0, limit)]

    async def dead_count(self, group_id: int, pids: Sequence[int]) -> int:
        await asyncio.sleep(0)
        return sum(letter.state is DeadLetterState.DEAD for letter in self._of(group_id, pids))

    async def dead_counts(self, pids: Mapping[int, Sequence[int]], *, limit: int | None = None) -> dict[int, int]:
        await asyncio.sleep(0)
        found = dict.fromkeys(pids, 0)
        for (group_id, key), letter in self._dead.items():
            if letter.state is DeadLetterState.DEAD and key.pid in pids.get(group_id, ()):
                found[group_id] = found[group_id] + 1 if limit is None else min(limit, found[group_id] + 1)
        return found

    async def dead_find(self, group_id: int, pid: int, offset: int) -> list[StoredDeadLetter]:
        await asyncio.sleep(0)
        found = [letter for letter in self._of(group_id, [pid]) if letter.key.offset == offset]
        return sorted(found, key=lambda letter: letter.key.epoch)

    async def dead_discard(self, group_id: int, keys: Sequence[DeadLetterKey]) -> int:
        await asyncio.sleep(0)
        dead = [key for key in set(keys) if self._is_dead(group_id, key)]
        for key in dead:
            self._mark(group_id, key, DeadLetterState.DISCARDED)
        return len(dead)

    async def dead_purge(self, group_id: int, pids: Sequence[int], *, age: timedelta, limit: int) -> int:
        await asyncio.sleep(0)
        until = milliseconds(self._clock()) - age // timedelta(milliseconds=1)
        finished = [letter for letter in self._of(group_id, pids) if letter.state is not DeadLetterState.DEAD]
        old = sorted((letter for letter in finished if letter.at_ms <= until), key=lambda letter: letter.at_ms)
        for letter in old[: max(0, limit)]:
            del self._dead[group_id, letter.key]
        return min(len(old), max(0, limit))

    async def dead_expire(
        self, group_id: int, pids: Sequence[int], retention: DeadLetterRetention, *, limit: int
    ) -> int:
        await asyncio.sleep(0)
        letters = [letter for pid in sorted(set(pids)) for letter in self._expired(group_id, pid, retention)]
        for letter in letters[: max(0, limit)]:
            del self._dead[group_id, letter.key]
        return min(len(letters), max(0, limit))

    async def dead_redrive(
        self, group_id: int, keys: Sequence[DeadLetterKey], append: Append
    ) -> tuple[Appended | Refused | None, list[bool]]:
        await asyncio.sleep(0)
        are_dead = [self._is_dead(group_id, key) for key in keys]
        if not all(are_dead):
            return None, are_dead
        answer = self._append(append)
        if isinstance(answer, Appended):
            for index, key in enumerate(keys):
                self._mark(group_id, key, DeadLetterState.REDRIVEN, answer.base + index)
        return answer, are_dead

    def _expired(self, group_id: int, pid: int, retention: DeadLetterRetention) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of a partition that exceed the retention: those in the state dead first."""
        letters = sorted(self._of(group_id, [pid]), key=lambda letter: (letter.at_ms, _order(letter.key)))
        for is_dead in (True, False):
            alike = [letter for letter in letters if (letter.state is DeadLetterState.DEAD) is is_dead]
            excess = 0 if retention.max_count is None else len(alike) - retention.max_count
            for rank, letter in enumerate(alike):
                is_old = retention.max_age_ms is not None and letter.at_ms <= self._now() - retention.max_age_ms
                if is_old or rank < excess:
                    yield letter

    def _now(self) -> int:
        return milliseconds(self._clock())

    def _commit_values(self, entry: JournalEntry, now: int, seen: set[tuple[int, int, bytes]]) -> CommitResult:
        values = [(entry.group_id, entry.incarnation, value) for value in entry.accepted_values]
        taken = frozenset(each[2] for each in values if self._once.get(each, now - _ONCE_MS) > now - _ONCE_MS)
        is_late = any(each in seen for each in values)
        seen.update(values)
        if taken and not is_late:
            return CommitResult(status=CommitStatus.REPEATED, clock_ms=now, taken=taken)
        status = CommitStatus.CONFLICT if is_late else self._commit(entry, now)
        if status is CommitStatus.OK:
            self._once.update(dict.fromkeys(values, now))
        return CommitResult(status=status, clock_ms=now)

    def _commit(self, entry: JournalEntry, now: int) -> CommitStatus:
        place = (entry.group_id, entry.pid)
        journal = self._journals.get(place, _Journal())
        if entry.version != journal.last + 1 or entry.after_nonce != journal.nonce(journal.last):
            return CommitStatus.CONFLICT
        if not entry.not_before_ms <= now <= entry.not_after_ms:
            return CommitStatus.TIME
        self._journals[place] = journal
        row = JournalRow(version=entry.version, nonce=entry.nonce, snapshot=entry.snapshot, body=entry.body)
        journal.rows.append((row, now))
        for letter in _letters(entry, now):
            self._dead.setdefault((entry.group_id, letter.key), letter)
        self.incidents.note(entry, now)
        return CommitStatus.OK

    def _trim_members(self, group_id: int, now: int, *, dropped: bool) -> int:
        rows = self._members[group_id]
        if dropped:
            del self._members[group_id]
            return len(rows)
        old = sum(at_ms < now - _GRACE_MS for _, _, at_ms in rows[1:])
        del rows[:old]
        return old

    def _drop_dead(self, group_id: int, pid: int) -> int:
        doomed = [letter.key for letter in self._of(group_id, [pid])]
        for key in doomed:
            del self._dead[group_id, key]
        return len(doomed)

    def _of(self, group_id: int, pids: Collection[int]) -> list[StoredDeadLetter]:
        return [letter for (group, key), letter in self._dead.items() if group == group_id and key.pid in pids]

    def _is_dead(self, group_id: int, key: DeadLetterKey) -> bool:
        letter = self._dead.get((group_id, key))
        return letter is not None and letter.state is DeadLetterState.DEAD

    def _mark(self, group_id: int, key: DeadLetterKey, state: DeadLetterState, redriven_to: int | None = None) -> None:
        self._dead[group_id, key] = replace(self._dead[group_id, key], state=state, redriven_to=redriven_to)


def _order(key: DeadLetterKey) -> tuple[int, int, int]:
    return key.pid, key.offset, key.epoch


def _letters(entry: JournalEntry, now: int) -> Iterator[StoredDeadLetter]:
    for letter in entry.dead_letters:
        yield StoredDeadLetter(
            group_id=entry.group_id,
            key=DeadLetterKey(pid=entry.pid, offset=letter.offset, epoch=letter.epoch),
            state=DeadLetterState.DEAD,
            at_ms=now,
            deliveries=letter.deliveries,
            failures=letter.failures,
            reason=storable(letter.reason),
            owner=storable(letter.owner),
            payload=letter.payload,
            traceback=None if letter.traceback is None else storable(letter.traceback),
            fingerprint=letter.fingerprint,
        )
