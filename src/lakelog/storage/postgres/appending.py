"""Appends on PostgreSQL: offsets from the function `lakelog.append`, batches into the active roll's hot table.

Both happen in one statement. A redrive also marks its dead letters in that statement, a relay records the messages of
its outbox, and a delivery removes its scheduled messages. The active roll that is remembered here is a guess that the
function corrects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, LiteralString

import asyncpg

from lakelog import failpoints
from lakelog.storage.outbox import RelayedAppend
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.store import Append, Appended, PartVerdict, Refusal, Refused, Verdict

_SQL = load("partitions")
_ROLLED = 5
_ABSENT = 6
"""The status of a dead letter that is not dead, or of a scheduled message that is not due. Nothing is written."""
_REPLACED = 7


class Appender:
    """Appends batches, across rolls."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._roll = 0

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        if len(appends) == 1 and _is_one_batch(appends[0]):
            answers = await self._append_one(appends[0])
        else:
            answers, _ = await self._append("batches_append", appends)
        if any(isinstance(answer, Refused) and answer.verdicts for answer in answers.values()):
            # The first write of a repeat is visible even if its wait for the standby was cancelled.
            await self._database.await_standby()
        return [answers[append.pid] for append in appends]

    async def _append_one(self, append: Append) -> dict[int, Appended | Refused]:
        """Append one batch, with a statement that takes less time than the general one."""
        (payload,) = append.payloads
        query, arguments = (
            "batches_append_one",
            [append.pid, append.epoch, payload.count, len(payload.data), payload.data],
        )
        for run in append.sequenced:
            query, arguments = "batches_append_numbered", [*arguments, run.producer, run.sequence]
        answers: dict[int, Appended | Refused] = {}
        roll = await self.roll()
        while append.pid not in answers:
            rows = await self._write(query, roll, *arguments)
            roll = self._sort_out(rows, {append.pid: append}, answers) or roll
        return answers

    async def deliver(self, appends: Sequence[Append]) -> tuple[list[Appended | Refused], list[tuple[int, bytes]]]:
        """Deliver scheduled messages as described in `ScheduledStore.deliver`, with keys as (pid, mark)."""
        answers, absent = await self._append("batches_deliver", appends)
        return [answers[append.pid] for append in appends if not absent], absent

    async def _append(
        self, query: str, appends: Sequence[Append]
    ) -> tuple[dict[int, Appended | Refused], list[tuple[int, bytes]]]:
        """Append, again after a roll. A delivery that wrote nothing returns the messages that are not due."""
        answers: dict[int, Appended | Refused] = {}
        waiting = {append.pid: append for append in sorted(appends, key=lambda append: append.pid)}
        roll = await self.roll()
        timeline = 0
        while waiting:
            some = list(waiting.values())
            keyed = [(append.pid, each) for append in some for each in append.keyed]
            rows = await self._write(query, roll, *_columns(some), [each.memory for _, each in keyed])
            if rows[0]["status"] == _ABSENT:
                absent = [keyed[row["part"]] for row in rows]
                return {}, [(pid, each.key_hash) for pid, each in absent]
            roll = self._sort_out(rows, waiting, answers) or roll
            timeline = self._database.check_timeline(timeline)
            waiting = {pid: append for pid, append in waiting.items() if pid not in answers}
        return answers, []

    async def redrive(
        self, group_id: int, keys: Sequence[tuple[int, int]], append: Append
    ) -> tuple[Appended | Refused | None, list[bool]]:
        """Redrive dead letters as described in `GroupStore.dead_redrive`. Keys are (offset, epoch)."""
        answers: dict[int, Appended | Refused] = {}
        roll = await self.roll()
        leading = (group_id, [offset for offset, _ in keys], [epoch for _, epoch in keys])
        while append.pid not in answers:
            rows = await self._write("batches_redrive", roll, *_columns([append]), *leading)
            if gone := {row["part"] for row in rows if row["status"] == _ABSENT}:
                return None, [part not in gone for part in range(len(keys))]
            roll = self._sort_out(rows, {append.pid: append}, answers) or roll
        return answers[append.pid], [True] * len(keys)

    async def relay(
        self, outbox_id: int, epoch: int, appends: Sequence[RelayedAppend]
    ) -> list[Appended | Refused] | None:
        """Append messages of an outbox as described in `RelayStore.relay`."""
        answers: dict[int, Appended | Refused] = {}
        waiting = {each.append.pid: each for each in sorted(appends, key=lambda each: each.append.pid)}
        roll = await self.roll()
        timeline = 0
        while waiting:
            marked = [(pid, *mark) for pid, each in waiting.items() for mark in each.marks]
            columns = ([row[place] for row in marked] for place in range(3))
            some = {pid: each.append for pid, each in waiting.items()}
            rows = await self._write("batches_relay", roll, *_columns(some.values()), outbox_id, epoch, *columns)
            if any(row["status"] == _REPLACED for row in rows):
                return None
            roll = self._sort_out(rows, some, answers) or roll
            timeline = self._database.check_timeline(timeline)
            waiting = {pid: each for pid, each in waiting.items() if pid not in answers}
        return [answers[each.append.pid] for each in appends]

    async def roll(self) -> int:
        """Return the newest roll that this process knows."""
        if self._roll == 0:
            self._roll = await self._active()
        return self._roll

    def drop(self) -> None:
        """Forget the newest roll: the data was replaced, and the roll may not exist."""
        self._roll = 0

    def saw(self, roll: int) -> None:
        """Record that a reader found batches in this roll."""
        self._roll = max(self._roll, roll)

    async def _active(self) -> int:
        return int((await self._database.read(_SQL["roll_find_active"]))[0]["roll"])

    def _sort_out(
        self, rows: list[asyncpg.Record], appends: dict[int, Append], answers: dict[int, Appended | Refused]
    ) -> int | None:
        """Record the results, and return the active roll if it changed."""
        verdicts: dict[int, list[PartVerdict]] = {}
        parts = _AppendColumns(appends.values())
        roll = None
        for row in rows:
            pid, status = row["pid"], row["status"]
            if row["part"] is not None:
                verdicts.setdefault(pid, []).append(parts.verdict(row))
            elif status == 0:
                answers[pid] = Appended(pid=pid, base=row["base"], appended_at=row["appended_at"])
            elif status != _ROLLED:
                answers[pid] = Refused(pid=pid, refusal=Refusal(status), verdicts=verdicts.get(pid, ()))
            else:
                roll = row["roll"]
        self.saw(roll or 0)
        return roll

    async def _write(self, query: str, roll: int, *arguments: object) -> list[asyncpg.Record]:
        try:
            if failpoints.armed:
                failpoints.hit("append.before_statement")
            return await self._database.write(on_roll(query, roll), roll, *arguments)
        except asyncpg.UndefinedTableError:
            # The hot table was dropped while this process was suspended. The statement failed and allocated no offset.
            active = await self._active()
            if active == roll:
                raise
            return await self._write(query, active, *arguments)


class _AppendColumns:
    """Maps the flat arrays of the function back to the parts of each append."""

    def __init__(self, appends: Collection[Append]) -> None:
        self._sequenced = [index for append in appends for index in range(len(append.sequenced))]
        self._keyed = [index for append in appends for index in range(len(append.keyed))]

    def verdict(self, row: asyncpg.Record) -> PartVerdict:
        index = (self._keyed if row["keyed"] else self._sequenced)[row["part"]]
        verdict = Verdict(row["verdict"])
        return PartVerdict(keyed=row["keyed"], index=index, verdict=verdict, offset=row["part_offset"])


def _is_one_batch(append: Append) -> bool:
    """Return whether this is a single batch without idempotency keys, which a producer may have numbered as a whole."""
    numbered = [(run.start, run.count) for run in append.sequenced]
    return not append.keyed and len(append.payloads) == 1 and numbered in ([], [(0, append.payloads[0].count)])


def _columns(appends: Iterable[Append]) -> list[list[Any]]:
    """Return the arguments that follow the roll in all statements which append any number of batches, in order."""
    columns: list[list[Any]] = [[] for _ in range(17)]
    for append in appends:
        last = size = 0
        for payload in append.payloads:
            last += payload.count
            size += len(payload.data)
            _add(columns[12:], append.pid, last, payload.count, size, payload.data)
        _add(columns, append.pid, append.epoch, last, size)
        for run in append.sequenced:
            _add(columns[4:], append.pid, run.producer, run.sequence, run.start, run.count)
        for keyed in append.keyed:
            _add(columns[9:], append.pid, keyed.key_hash, keyed.start)
    return columns


def _add(columns: Sequence[list[Any]], *values: Any) -> None:
    for column, value in zip(columns, values, strict=False):
        column.append(value)


def on_roll(query: str, roll: int) -> LiteralString:
    """Return the query for the hot table of a roll. The roll is a number from the database, never user input."""
    key = (query, roll)
    if key not in _ON_ROLL:
        if len(_ON_ROLL) > 1000:
            _ON_ROLL.clear()
        text: Any = _SQL[query].replace("{roll}", str(int(roll)))
        _ON_ROLL[key] = text
    return _ON_ROLL[key]


_ON_ROLL: dict[tuple[str, int], LiteralString] = {}
