"""Records of the messages of outboxes, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from lakelog.model.topic import Scope
from lakelog.storage.groups import storable
from lakelog.storage.outbox import RELAYED_MEMORY, TRIM_RECORDS, RelayedAppend, StoredRejection
from lakelog.storage.postgres.appending import Appender
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.store import Appended, Refused

_SQL = load("outbox")


class PostgresRelays:
    """Implements `lakelog.storage.outbox.RelayStore`."""

    def __init__(self, database: Database, appender: Appender) -> None:
        self._database = database
        self._appender = appender

    async def epoch_raise(self, outbox_id: int, scope: Scope) -> int:
        rows = await self._database.write(_SQL["relay_epoch_raise"], outbox_id, scope.environment_id)
        epoch: int = rows[0]["epoch"]
        return epoch

    async def relay(
        self, outbox_id: int, epoch: int, appends: Sequence[RelayedAppend]
    ) -> list[Appended | Refused] | None:
        return await self._appender.relay(outbox_id, epoch, appends)

    async def reject(
        self, outbox_id: int, epoch: int, scope: Scope, rejections: Mapping[tuple[int, int], StoredRejection]
    ) -> bool:
        rows = await self._database.write(
            _SQL["messages_reject"],
            outbox_id,
            epoch,
            [number for number, _ in rejections],
            [salt for _, salt in rejections],
            scope.environment_id,
            [each.message_id for each in rejections.values()],
            [storable(each.topic) for each in rejections.values()],
            [each.code for each in rejections.values()],
            [storable(each.reason) for each in rejections.values()],
            [each.partition for each in rejections.values()],
            [each.payload for each in rejections.values()],
        )
        return bool(rows[0][0])

    async def record(self, outbox_id: int, epoch: int, positions: Mapping[tuple[int, int], tuple[int, int]]) -> bool:
        rows = await self._database.write(
            _SQL["messages_record"],
            outbox_id,
            epoch,
            [number for number, _ in positions],
            [salt for _, salt in positions],
            [pid for pid, _ in positions.values()],
            [offset for _, offset in positions.values()],
        )
        return bool(rows[0][0])

    async def relayed(self, outbox_id: int, marks: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        if not marks:
            return {}
        numbers = [number for number, _ in marks]
        salts = [salt for _, salt in marks]
        rows = await self._database.read(_SQL["relayed_find"], outbox_id, numbers, salts, min(numbers), max(numbers))
        return {(row["number"], row["salt"]): (row["pid"], row["message_offset"]) for row in rows}

    async def environment(self, outbox_id: int) -> int | None:
        rows = await self._database.read(_SQL["outbox_environment_find"], outbox_id)
        return rows[0]["environment_id"] if rows else None

    async def relayed_trim(self, outbox_id: int, before: datetime) -> int:
        arguments = (outbox_id, before, RELAYED_MEMORY, TRIM_RECORDS)
        return len(await self._database.write(_SQL["relayed_trim"], *arguments))
