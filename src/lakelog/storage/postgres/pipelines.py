"""Pipeline runs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import asyncpg
import msgspec

from lakelog.errors import Conflict
from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.model.topic import Scope
from lakelog.storage.groups import storable
from lakelog.storage.pipelines import RUNS_KEPT
from lakelog.storage.postgres.audit import write_change
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("pipelines")
_PROGRESS = msgspec.json.Decoder(dict[str, int])


class PostgresPipelines:
    """Implements `lakelog.storage.pipelines.PipelineCatalog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_begin(self, scope: Scope, start: RunStart, *, alive_seconds: float) -> PipelineRun:
        rows = await write_change(
            self._database,
            _SQL["run_begin"],
            scope.environment_id,
            start.run_id,
            start.pipeline,
            start.topic or "",
            storable(start.host),
            timedelta(seconds=alive_seconds),
            RUNS_KEPT,
        )
        if not rows:
            # The active run ended between the two statements, or the id belongs to another environment.
            raise Conflict("The run could not be started. Retry.")
        return _run_of(rows[0])

    async def run_seen(self, scope: Scope, run_id: str, progress: Mapping[str, int]) -> bool:
        text = _text(progress)
        return bool(await self._database.write(_SQL["run_touch"], scope.environment_id, run_id, text))

    async def run_end(
        self, scope: Scope, run_id: str, state: RunState, progress: Mapping[str, int], detail: str
    ) -> PipelineRun | None:
        place = (scope.environment_id, run_id)
        rows = await write_change(
            self._database, _SQL["run_end"], *place, state.value, _text(progress), storable(detail)
        )
        rows = rows or await self._database.read(_SQL["run_find"], *place)
        return _run_of(rows[0]) if rows else None

    async def run_list(
        self, scope: Scope, *, pipeline: str | None, topic: str | None, limit: int, alive_seconds: float
    ) -> list[PipelineRun]:
        alive = timedelta(seconds=alive_seconds)
        rows = await self._database.read(_SQL["run_list"], scope.environment_id, pipeline, topic, limit, alive)
        return [
            replace(run, state=RunState.LOST, ended_at=run.seen_at) if row["is_lost"] else run
            for row, run in ((row, _run_of(row)) for row in rows)
        ]


def _text(progress: Mapping[str, int]) -> str:
    return msgspec.json.encode(dict(progress)).decode()


def _run_of(row: asyncpg.Record) -> PipelineRun:
    return PipelineRun(
        run_id=row["run_id"],
        pipeline=row["pipeline"],
        topic=row["topic"] or None,
        host=row["host"],
        state=RunState(row["state"]),
        started_at=row["started_at"],
        seen_at=row["seen_at"],
        ended_at=row["ended_at"],
        progress=_PROGRESS.decode(row["progress"]),
        detail=row["detail"],
    )
