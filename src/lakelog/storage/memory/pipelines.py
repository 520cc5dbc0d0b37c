"""Pipeline runs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from lakelog.errors import Conflict
from lakelog.model.pipeline import PipelineRun, RunStart, RunState
from lakelog.model.topic import Scope
from lakelog.storage.memory.audit import MemoryAudit
from lakelog.storage.memory.clock import Clock
from lakelog.storage.pipelines import RUNS_KEPT


class MemoryPipelines:
    """A `PipelineCatalog` in memory."""

    def __init__(self, clock: Clock, audit: MemoryAudit) -> None:
        self._clock = clock
        self._audit = audit
        self._runs: dict[str, tuple[int, PipelineRun]] = {}
        """Runs with their environment by id, in the order of their start."""

    async def run_begin(self, scope: Scope, start: RunStart, *, alive_seconds: float) -> PipelineRun:
        await asyncio.sleep(0)
        if (known := self._runs.get(start.run_id)) is not None:
            if known[0] != scope.environment_id:
                raise Conflict("The run could not be started. Retry.")
            return known[1]
        now = self._clock()
        rivals = [
            run
            for environment_id, run in self._runs.values()
            if (environment_id, run.pipeline, run.topic) == (scope.environment_id, start.pipeline, start.topic)
        ]
        for rival in rivals:
            if rival.state is not RunState.RUNNING:
                continue
            if rival.seen_at >= now - timedelta(seconds=alive_seconds):
                return rival
            self._put(scope, replace(rival, state=RunState.LOST, ended_at=rival.seen_at))
        for old in rivals[: max(0, len(rivals) - RUNS_KEPT)]:
            del self._runs[old.run_id]
        run = PipelineRun(
            run_id=start.run_id,
            pipeline=start.pipeline,
            topic=start.topic,
            host=start.host,
            state=RunState.RUNNING,
            started_at=now,
            seen_at=now,
        )
        self._put(scope, run)
        self._audit.changed()
        return run

    async def run_seen(self, scope: Scope, run_id: str, progress: Mapping[str, int]) -> bool:
        await asyncio.sleep(0)
        run = self._find(scope, run_id)
        if run is None or run.state.is_over:
            return False
        self._put(scope, replace(run, seen_at=self._clock(), progress=dict(progress)))
        return True

    async def run_end(
        self, scope: Scope, run_id: str, state: RunState, progress: Mapping[str, int], detail: str
    ) -> PipelineRun | None:
        await asyncio.sleep(0)
        run = self._find(scope, run_id)
        if run is None or run.state.is_over:
            return run
        now = self._clock()
        ended = replace(run, state=state, seen_at=now, ended_at=now, progress=dict(progress), detail=detail)
        self._put(scope, ended)
        self._audit.changed()
        return ended

    async def run_list(
        self, scope: Scope, *, pipeline: str | None, topic: str | None, limit: int, alive_seconds: float
    ) -> list[PipelineRun]:
        await asyncio.sleep(0)
        over = self._clock() - timedelta(seconds=alive_seconds)
        runs = [
            replace(run, state=RunState.LOST, ended_at=run.seen_at)
            if run.state is RunState.RUNNING and run.seen_at < over
            else run
            for environment_id, run in reversed(self._runs.values())
            if environment_id == scope.environment_id
            and pipeline in (None, run.pipeline)
            and topic in (None, run.topic)
        ]
        return runs[:limit]

    def _find(self, scope: Scope, run_id: str) -> PipelineRun | None:
        known = self._runs.get(run_id)
        return known[1] if known is not None and known[0] == scope.environment_id else None

    def _put(self, scope: Scope, run: PipelineRun) -> None:
        self._runs[run.run_id] = (scope.environment_id, run)
