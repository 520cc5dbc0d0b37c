"""Elections on PostgreSQL: one row per task, with the runner and the end of its lease."""

from __future__ import annotations

from datetime import timedelta

from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("elections")


class PostgresElections:
    """Implements `lakelog.storage.election.ElectionStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def elect(self, task: str, runner: str, lease: timedelta) -> bool:
        # A runner that lost the reply asks again in its next pass.
        return bool((await self._database.read(_SQL["runner_elect"], task, runner, lease))[0][0])

    async def resign(self, task: str, runner: str) -> None:
        await self._database.read(_SQL["runner_resign"], task, runner)
